"""Work that is killed at random moments: what it wrote must be complete, and it must go on.

Each kind of work runs in a fork of a process that has compiled everything, so that a kill costs
milliseconds. The parent kills it after a random share of the time that the work takes.
"""

from __future__ import annotations

import os
import signal
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

import unskew
from unskew.evaluation import Monitor
from unskew.io.writing import TEMPORARY
from unskew.models import (
    AllRank,
    DoublyRobustFactorization,
    GlobalMean,
    MultinomialMixture,
    OrdinalFactorization,
)

N_WRITES = 12
"""How often a child writes its file."""


@dataclass
class KillTally:
    """Kills of one kind, and what was wrong afterwards."""

    kills: int = 0
    corrupt: int = 0
    other_bits: int = 0
    abandoned: int = 0
    """Kills that left a temporary file, which the next write to the folder removes."""
    stale: int = 0
    """Temporary files that are left after that write."""

    @property
    def is_clean(self) -> bool:
        return not (self.corrupt or self.other_bits or self.stale)


class Work(ABC):
    """Something that writes a file while it runs."""

    name: ClassVar[str]
    file: ClassVar[str]

    @abstractmethod
    def run(self, path: Path) -> None:
        """Do all of the work."""

    @abstractmethod
    def is_complete(self, path: Path) -> bool:
        """Whether the file that a killed run left is one that some moment of the work wrote."""

    def gives_same_bits(self, path: Path) -> bool:
        """Whether a run that goes on from the file ends like one that was not killed."""
        return True


def make_log() -> unskew.Ratings:
    return unskew.simulate(200, 100, density=0.1, random_state=0).log


class Fit(Work):
    """A fit that writes a checkpoint after each step."""

    name, file = "fit by least squares", "fit.checkpoint"

    def __init__(self) -> None:
        self.log = make_log()
        self.expected = self._fit(None)

    def make_model(self) -> Any:
        return unskew.MatrixFactorization(4, 1.0, max_iter=N_WRITES, tol=0.0, n_threads=1)

    def _fit(self, checkpoint: Path | None) -> tuple[Any, Any]:
        """The predictions of all cells, and the history of the objective."""
        propensities = np.full(len(self.log), 0.1)
        users, items = np.indices((200, 100)).reshape(2, -1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = self.make_model()
            model.fit(self.log, propensities, checkpoint=checkpoint, checkpoint_every=1)
            predicted = model.predict(
                self.log.users[users], self.log.items[items], on_unknown="fallback"
            )
        return predicted, model.history_

    def run(self, path: Path) -> None:
        self._fit(path)

    def is_complete(self, path: Path) -> bool:
        return path.exists()

    def gives_same_bits(self, path: Path) -> bool:
        predicted, history = self._fit(path)
        return np.array_equal(predicted, self.expected[0]) and history == self.expected[1]


class LbfgsFit(Fit):
    name = "fit by L-BFGS"

    def make_model(self) -> Any:
        settings: Any = {"solver": "lbfgs", "dtype": "float32"}
        return unskew.MatrixFactorization(4, 1.0, max_iter=N_WRITES, tol=0.0, **settings)


class RobustFit(Fit):
    name = "doubly robust fit"

    def make_model(self) -> Any:
        return DoublyRobustFactorization(2, imputation="error", max_iter=N_WRITES, tol=0.0)


class MixtureFit(Fit):
    name = "fit of a mixture by EM"

    def make_model(self) -> Any:
        return MultinomialMixture("cpt-v", 2, max_iter=N_WRITES)


class OrdinalFit(Fit):
    name = "ordinal fit (MNAR)"

    def make_model(self) -> Any:
        return OrdinalFactorization(2, mechanism="mnar", max_iter=4, tol=0.0)


class ClickFit(Fit):
    name = "fit to clicks"

    def make_model(self) -> Any:
        return AllRank(2, max_iter=N_WRITES, tol=0.0)


def _fit_briefly(log: unskew.Ratings) -> unskew.MatrixFactorization:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return unskew.MatrixFactorization(16, max_iter=1).fit(log)


class Save(Work):
    """Two models that are saved to one file in turns."""

    name, file = "save of a model", "model.unskew"

    def __init__(self) -> None:
        log = make_log()
        self.models = [GlobalMean().fit(log), _fit_briefly(log)]

    def run(self, path: Path) -> None:
        for number in range(N_WRITES):
            self.models[number % 2].save(path)

    def is_complete(self, path: Path) -> bool:
        loaded, log = unskew.load(path), make_log()
        pairs = log.users[log.user[:20]], log.items[log.item[:20]]
        return any(
            type(loaded) is type(model)
            and np.array_equal(loaded.predict(*pairs), model.predict(*pairs))
            for model in self.models
        )


class Report(Work):
    """The page of a result."""

    name, file = "report", "page.html"

    def __init__(self) -> None:
        log = make_log()
        models = {"twos": np.full(len(log), 2.0), "threes": np.full(len(log), 3.0)}
        self.result = unskew.evaluate(log, models, metrics="mae", estimators="naive")

    def run(self, path: Path) -> None:
        for _ in range(N_WRITES):
            self.result.to_html(path)

    def is_complete(self, path: Path) -> bool:
        return path.read_text().rstrip().endswith("</html>")


class Watching(Work):
    """A monitor that is saved after each batch of rows."""

    name, file = "watch", "monitor.json"

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        self.rating = rng.integers(1, 6, (N_WRITES, 40)).astype(np.float64)
        self.noise = rng.normal(size=self.rating.shape)
        self.expected = self._go_on(Monitor(["a", "b"], planned_size=500), None)

    def _go_on(self, monitor: Monitor, path: Path | None) -> str:
        for number in range(monitor.position.get("batches", 0), N_WRITES):
            rating = self.rating[number]
            predictions = {"a": rating + self.noise[number], "b": rating + 1.0}
            monitor.update(rating, predictions, np.full(rating.size, 0.1))
            monitor.position = {"batches": number + 1}
            if path is not None:
                monitor.save(path)
        return monitor.watch().to_json()

    def run(self, path: Path) -> None:
        self._go_on(Monitor(["a", "b"], planned_size=500), path)

    def is_complete(self, path: Path) -> bool:
        return Monitor.load(path).n_rows % 40 == 0

    def gives_same_bits(self, path: Path) -> bool:
        return self._go_on(Monitor.load(path), None) == self.expected


class Recommendations(Work):
    """Recommendations that are written block by block."""

    name, file = "write_recommendations", "lists.csv"

    def __init__(self) -> None:
        self.model = GlobalMean().fit(make_log())

    def run(self, path: Path) -> None:
        for number in range(N_WRITES // 2):
            self.model.write_recommendations(path, k=3 + number % 2, block_size=20)

    def is_complete(self, path: Path) -> bool:
        return len(path.read_text().splitlines()) in (1 + 200 * 3, 1 + 200 * 4)


FITS: tuple[type[Fit], ...] = (Fit, LbfgsFit, RobustFit, MixtureFit, OrdinalFit, ClickFit)
KINDS: tuple[type[Work], ...] = (*FITS, Save, Report, Watching, Recommendations)


def kill_often(kind: type[Work], n_kills: int, folder: Path, seed: int = 0) -> KillTally:
    """Kill a kind of work at random moments, and look at what it left after it went on."""
    work, rng, tally = kind(), np.random.default_rng(seed), KillTally()
    path = folder / kind.file
    begin = time.perf_counter()
    run_in_fork(lambda: work.run(path), None)
    seconds = time.perf_counter() - begin
    while tally.kills < n_kills:
        path.unlink(missing_ok=True)
        if not run_in_fork(lambda: work.run(path), float(rng.random()) * seconds):
            continue
        tally.kills += 1
        tally.abandoned += any(folder.glob(f"{TEMPORARY}*"))
        if path.exists():
            tally.corrupt += not _holds(work.is_complete, path)
            tally.other_bits += not _holds(work.gives_same_bits, path)
    run_in_fork(lambda: work.run(path), None)
    tally.stale = len([each for each in folder.iterdir() if each != path])
    path.unlink(missing_ok=True)
    return tally


def _holds(check: Callable[[Path], bool], path: Path) -> bool:
    try:
        return check(path)
    except Exception:  # any error says that the file is damaged
        return False


def run_in_fork(work: Callable[[], object], seconds: float | None) -> bool:
    """Run ``work`` in a child and kill it after ``seconds``; whether it was killed in time."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # other threads of this process hold no locks here
        child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    if seconds is not None:
        time.sleep(seconds)
        os.kill(child, signal.SIGKILL)
    status = os.waitpid(child, 0)[1]
    return os.WIFSIGNALED(status)
