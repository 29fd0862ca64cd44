"""A solver run to its end: when it stops, what it tells, and how it survives being killed."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar, get_type_hints

import numpy as np
import numpy.typing as npt

from unskew.data.checks import is_finite_number, whole_number
from unskew.errors import UsageError
from unskew.factorization.solver import Solver
from unskew.io.model_files import replace_file
from unskew.settings import Configurable

S = TypeVar("S")
P = TypeVar("P")
Arrays = Mapping[str, npt.NDArray[Any]]
FLAT_STEPS = 3
"""One step may be short by accident: after a restart of the momentum, say."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Where the state of a run is kept, and after how many steps each time."""

    path: Path
    every: int
    fingerprint: str
    """Names the problem and its settings: a file of another one is refused."""

    def part(self, name: str) -> Checkpoint:
        """For a part of the run that is a run itself: in a file beside this one, which :meth:`drop` removes once it is done."""
        return Checkpoint(
            self.path.with_name(f"{self.path.name}.{name}"),
            self.every,
            f"{self.fingerprint} {name}",
        )

    def drop(self) -> None:
        """Remove the file, if it is there."""
        self.path.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True, eq=False)
class Solution(Generic[P]):
    """How a run ended."""

    parameters: P
    history: tuple[float, ...]
    """The objective after each step, the start first: inf where a sweep is what finds it."""
    has_converged: bool


class Iterative(Configurable):
    """What a model that is fitted step by step tells of its run, and how it names its checkpoint.

    Attributes
    ----------
    history_ : the objective after 0, 1, ... ``n_iter_`` steps. A solver that sweeps over users and items solves the users first,
        so that its start has no objective: there ``history_[0]`` is inf.
    objective_, n_iter_, converged_ : the last of them, the number of steps, and whether the objective was flat.
    """

    max_iter: int
    tol: float
    random_state: int
    objective_: float
    history_: tuple[float, ...]
    n_iter_: int
    converged_: bool
    NOT_IN_FINGERPRINT: ClassVar = frozenset(
        {"n_threads", "verbose", "max_iter", "tol", "statistic"}
    )
    """Settings that change how far a run goes, or what is made of it, and not its steps."""

    def _check_run(self) -> None:
        """Settings that every run has."""
        whole_number("max_iter", self.max_iter, least=1)
        whole_number("random_state", self.random_state, least=0)
        if not (is_finite_number(self.tol) and self.tol >= 0):
            raise UsageError(f"tol must be a finite number, at least 0; got {self.tol!r}.")

    def _tell(self, outcome: Solution[Any]) -> None:
        """Keep how the run went."""
        self.history_ = outcome.history
        self.objective_ = outcome.history[-1]
        self.n_iter_ = len(outcome.history) - 1
        self.converged_ = outcome.has_converged

    def _checkpoint(
        self,
        path: str | Path | None,
        every: int,
        *arrays: npt.NDArray[Any],
        sizes: tuple[int, int],
        begin: Any = None,
    ) -> Checkpoint | None:
        """Settings, data, users and items, and where the run begins name it: a file of another one is refused."""
        if path is None:
            return None
        whole_number("checkpoint_every", every, least=1)
        settings = {
            name: value
            for name, value in self.get_params().items()
            if name not in self.NOT_IN_FINGERPRINT
        }
        digest = hashlib.sha256(json.dumps(settings, sort_keys=True, default=repr).encode())
        digest.update(repr(sizes).encode())
        for part in (*arrays, *(() if begin is None else _flatten(begin).values())):
            digest.update(np.ascontiguousarray(part).tobytes())
        return Checkpoint(Path(path), every, digest.hexdigest())


def run(
    solver: Solver[S, P],
    begin: Callable[[], P],
    *,
    max_iter: int,
    tol: float,
    checkpoint: Checkpoint | None = None,
    report: Callable[[int, float], None] | None = None,
) -> Solution[P]:
    """Advance until a step lowers the objective by no more than ``tol`` of it, or ``max_iter`` steps are done."""
    state = solver.start(begin())
    history: tuple[float, ...] = (solver.value(state),)
    if checkpoint is not None and checkpoint.path.exists():
        state, history = load_state(checkpoint, type(state))
    has_converged = _is_flat(solver, state, history, tol)
    while (len(history) - 1) * solver.n_steps < max_iter and not has_converged:
        state = solver.advance(state)
        history = (*history, solver.value(state))
        has_converged = _is_flat(solver, state, history, tol)
        if report is not None:
            report(len(history) - 1, history[-1])
        if checkpoint is not None and (len(history) - 1) % checkpoint.every == 0:
            save_state(checkpoint, state, history)
    return Solution(solver.parameters(state), history, has_converged)


def _is_flat(solver: Solver[S, P], state: S, history: tuple[float, ...], tol: float) -> bool:
    """Whether the last few steps together lowered the objective by no more than ``tol`` of it a step."""
    if len(history) > 1 and solver.has_stalled(state):
        return True
    window = FLAT_STEPS // solver.n_steps or 1
    if len(history) <= window:
        return False
    return bool(
        abs(history[-1 - window] - history[-1]) <= tol * window * solver.n_steps * abs(history[-1])
    )


def save_state(checkpoint: Checkpoint, state: Any, history: tuple[float, ...]) -> None:
    """Write a zip of arrays beside the old file and put it in its place in one step: a kill leaves one of the two whole."""
    arrays = {
        "history": np.array(history),
        "fingerprint": np.array(checkpoint.fingerprint),
        **_flatten(state),
    }
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **arrays)
    replace_file(checkpoint.path, buffer.getvalue())


def load_state(checkpoint: Checkpoint, kind: type[S]) -> tuple[S, tuple[float, ...]]:
    """The state and history that :func:`save_state` wrote, bit for bit."""
    try:
        with np.load(io.BytesIO(checkpoint.path.read_bytes()), allow_pickle=False) as stored:
            arrays = dict(stored)
        if str(arrays["fingerprint"]) != checkpoint.fingerprint:
            raise UsageError(
                f"the checkpoint {checkpoint.path} belongs to another log, other weights or other settings. "
                "Remove it, or name another file."
            )
        return _unflatten(kind, arrays), tuple(arrays["history"].tolist())
    except UsageError:
        raise
    except KeyError as error:
        raise UsageError(
            f"{checkpoint.path} is no checkpoint, but another kind of file. Name another one."
        ) from error
    except (OSError, EOFError, ValueError, zipfile.BadZipFile) as error:
        raise UsageError(
            f"the checkpoint {checkpoint.path} cannot be read ({error}). Name another file."
        ) from error


def _flatten(record: Any, prefix: str = "state") -> dict[str, npt.NDArray[Any]]:
    """The fields of a record, those of records inside it included, as named arrays."""
    parts: dict[str, npt.NDArray[Any]] = {}
    for field in fields(record):
        value, name = getattr(record, field.name), f"{prefix}.{field.name}"
        parts.update(
            _flatten(value, name) if is_dataclass(value) else {name: np.asarray(_on_host(value))}
        )
    return parts


def _on_host(value: Any) -> Any:
    """An array of an engine's own kind, brought here; anything else as it is."""
    return value.cpu() if hasattr(value, "cpu") else value


def _unflatten(kind: type[S], arrays: Arrays, prefix: str = "state") -> S:
    hints = get_type_hints(kind)
    values: dict[str, Any] = {}
    for field in fields(kind):  # type: ignore[arg-type]
        name, hint = f"{prefix}.{field.name}", hints[field.name]
        if name not in arrays and field.default is not MISSING:
            continue  # the file is older than the field
        if is_dataclass(hint):
            values[field.name] = _unflatten(hint, arrays, name)  # type: ignore[arg-type]
        else:
            values[field.name] = arrays[name] if arrays[name].ndim else arrays[name].item()
    return kind(**values)
