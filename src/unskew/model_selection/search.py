"""Grid search scored by an estimator of the risk over all cells (Section 6.1)."""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from itertools import groupby, product
from pathlib import Path
from typing import Any, Protocol, Self, runtime_checkable

import numpy as np

from unskew.data.checks import is_finite_number
from unskew.data.frames import make_frame
from unskew.data.propensities import PropensitiesLike, as_propensities
from unskew.data.ratings import Ratings
from unskew.data.result import describe_json
from unskew.errors import PropensityWarning, UnskewWarning, UsageError
from unskew.evaluation.arguments import SCORES, warn_of_scores
from unskew.factorization.engine import Frame
from unskew.metrics.names import find_metric
from unskew.model_selection.folds import Part, split
from unskew.plugins import find_engine, load_report_function
from unskew.progress import Track, no_progress, progress_bar
from unskew.tables import html_table, text_table
from unskew.threads import Workers, single_blas_thread

Setting = dict[str, Any]


class Fittable(Protocol):
    """A recommender with settings that can be changed and fitted again."""

    def get_params(self) -> dict[str, Any]:
        """Settings by name."""
        ...

    def set_params(self, **params: Any) -> Self:
        """Change settings."""
        ...

    def fit(self, log: Ratings, propensities: Any = None) -> Self:
        """Fit to a log."""
        ...


class Fitting(Protocol):
    """Ratings to fit to, wherever they are."""

    def fit(self, model: Any, *, clip: float | None, warm_start: Any) -> Any:
        """``model`` fitted to them, no weight above ``clip``."""
        ...


class Whole(Fitting, Protocol):
    """All ratings of the log."""

    @property
    def n_ratings(self) -> int:
        """How many."""
        ...


class Judging(Fitting, Protocol):
    """A fold: ratings to fit to, and others to judge on."""

    def score(self, fitted: Any, *, metric: str, estimator: str) -> float:
        """The risk over all cells that these promise."""
        ...


@runtime_checkable
class FrameFolds(Protocol):
    """An engine that splits a log where it lies."""

    def split(
        self, frame: Frame, propensity: Any, /, *, n_folds: int, random_state: int
    ) -> tuple[Whole, Sequence[Judging]]:
        """All of the log, and its folds."""
        ...

    def check_judge(self, *, metric: str, estimator: str) -> None:
        """Refuse what folds cannot be judged by there."""
        ...


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class CrossValidation:
    """What :func:`cross_validate` found."""

    best_params: Setting
    best_score: float
    best_model: Any
    """Fitted again to the whole log with the best settings; None where that was not asked for."""
    table: Sequence[Mapping[str, Any]]
    """A row a setting, the best first: settings, score (mean over folds), its standard deviation, steps, seconds."""
    metric: str
    estimator: str
    setup: Mapping[str, Any] = field(default_factory=dict)
    """What was searched: the model's name, the number of ratings and folds, and the seed."""

    def to_columns(self) -> dict[str, list[Any]]:
        """The table, column by column."""
        return {name: [row[name] for row in self.table] for name in self.table[0]}

    def to_frame(self, backend: str | None = None) -> Any:
        """The table as a data frame."""
        return make_frame(self.to_columns(), backend)

    def to_json(self) -> str:
        """The table, the choice, and the objective after each step of the best model's fit, where it tells."""
        found = {
            "best_params": self.best_params,
            "best_score": self.best_score,
            "metric": self.metric,
        }
        history = [
            float(value) for value in getattr(self.best_model, "history_", ()) if np.isfinite(value)
        ]
        rest = {"estimator": self.estimator, "rows": list(self.table), "history": history}
        return json.dumps(
            describe_json("cross_validation") | found | rest | dict(self.setup), default=repr
        )

    def to_html(self, path: str | Path) -> Path:
        """The choice, the surface of scores and the learning curve, as one HTML file that needs nothing else; its path."""
        page: Path = load_report_function("write_page")(self.to_json(), path)
        return page

    def __repr__(self) -> str:
        return f"{text_table(self.to_columns())}\nbest by {self.estimator} of {self.metric}: {self.best_params}"

    def _repr_html_(self) -> str:
        return html_table(self.to_columns())


def cross_validate(
    model: Fittable,
    log: Ratings | Frame,
    propensities: PropensitiesLike | None = None,
    *,
    grid: Mapping[str, Sequence[Any]],
    n_folds: int = 4,
    metric: str = "mse",
    relevant: float | None = None,
    estimator: str = "ips",
    refit: bool = True,
    n_threads: int | None = None,
    random_state: int = 0,
    verbose: bool = False,
    engine: str | FrameFolds = "auto",
) -> CrossValidation:
    """Choose settings of ``model`` by the risk over *all* cells that its validation folds promise.

    ``grid`` maps names of settings to values; ``"clip"`` among them is the largest weight in training. Propensities are scaled by
    (k-1)/k for training and 1/k for validation, since that is how likely a cell was to get there. Without propensities the naive
    model is chosen naively. ``metric`` and ``relevant`` mean what they mean in :func:`unskew.evaluate`; a model whose scores are
    no ratings wants a ranking metric. Settings that differ in ``l2`` alone are fitted from the weakest penalty up, each from the
    last.

    With ``engine="spark"`` ``log`` is a Spark data frame and ``propensities`` the name of a column: folds are drawn, fitted and
    judged (by ``mse`` or ``mae``) there, one after another.
    """
    if "clip" in grid and propensities is None:
        raise UsageError(
            "clip limits inverse propensities, and there are none: pass propensities=..., or leave clip out."
        )
    settings = _settings(model, grid)
    judge = find_metric(metric, relevant=relevant)
    warn_of_scores({type(model).__name__: model}, [judge])
    source = find_engine(engine)
    if source is None:
        whole, folds = _split_here(
            log, propensities, n_folds=n_folds, random_state=random_state, relevant=relevant
        )
    elif isinstance(source, FrameFolds):
        source.check_judge(metric=metric, estimator=estimator)
        whole, folds = source.split(log, propensities, n_folds=n_folds, random_state=random_state)
        n_threads = 1
    else:
        raise UsageError(
            f"{type(source).__name__} has no folds. Pass engine='spark', or leave engine=... out."
        )
    paths = [(path, fold) for path in _paths(settings) for fold in folds]
    track: Track = progress_bar if verbose else no_progress
    with (
        single_blas_thread(),
        warnings.catch_warnings(),
        Workers(n_threads) as workers,
    ):  # for all threads, so held here
        warnings.simplefilter("ignore", PropensityWarning)
        warnings.filterwarnings("ignore", f".*{SCORES}", UnskewWarning)  # said once, above
        scored = workers.stream(
            lambda job: _score_path(model, *job, metric=metric, estimator=estimator), paths
        )
        results = [
            row
            for rows in track(scored, label="cross-validation", total=len(paths))
            for row in rows
        ]
    table = _summarize(settings, results, higher_is_better=judge.higher_is_better)
    best = {name: table[0][name] for name in grid}
    best_model = _fit(model, best, whole) if refit else None
    setup = {
        "model": type(model).__name__,
        "n_observed": whole.n_ratings,
        "n_folds": n_folds,
        "seed": random_state,
    }
    return CrossValidation(best, table[0]["score"], best_model, table, metric, estimator, setup)


def _settings(model: Fittable, grid: Mapping[str, Sequence[Any]]) -> list[Setting]:
    unknown = set(grid) - set(model.get_params()) - {"clip"}
    if unknown:
        raise UsageError(
            f"{type(model).__name__} has no setting {sorted(unknown)[0]!r}; it has {', '.join(model.get_params())}."
        )
    if not grid or not all(len(values) for values in grid.values()):
        raise UsageError("the grid must name at least one setting, each with at least one value.")
    for clip in grid.get("clip", ()):
        if not (clip is None or (is_finite_number(clip) and clip >= 1)):
            raise UsageError(
                f"clip is the largest weight in training, at least 1, or None for no limit; got {clip!r}."
            )
    plain = [
        [value.item() if isinstance(value, np.generic) else value for value in values]
        for values in grid.values()
    ]
    return [dict(zip(grid, values, strict=True)) for values in product(*plain)]


def _paths(settings: list[Setting]) -> Iterator[list[Setting]]:
    """Settings that differ in l2 alone, weakest first."""

    def others(setting: Setting) -> str:
        return json.dumps(
            {name: value for name, value in setting.items() if name != "l2"},
            default=str,
            sort_keys=True,
        )

    for _, path in groupby(sorted(settings, key=others), key=others):
        yield sorted(path, key=lambda setting: setting.get("l2", 0.0))


def _score_path(
    model: Fittable, path: list[Setting], fold: Judging, *, metric: str, estimator: str
) -> list[tuple[Setting, Setting]]:
    scored, last = [], None
    for setting in path:
        began = time.perf_counter()
        fitted = _fit(model, setting | _one_thread(model), fold, warm_start=last)
        last = getattr(fitted, "parameters_", None)
        score = fold.score(fitted, metric=metric, estimator=estimator)
        steps = getattr(fitted, "n_iter_", 0)
        scored.append(
            (setting, {"score": score, "n_iter": steps, "seconds": time.perf_counter() - began})
        )
    return scored


def _one_thread(model: Fittable) -> Setting:
    return {"n_threads": 1} if "n_threads" in model.get_params() else {}


def _fit(model: Fittable, setting: Setting, part: Fitting, *, warm_start: Any = None) -> Any:
    changed = {name: value for name, value in setting.items() if name != "clip"}
    return part.fit(
        copy(model).set_params(**changed), clip=setting.get("clip"), warm_start=warm_start
    )


def _split_here(
    log: Ratings,
    propensities: PropensitiesLike | None,
    *,
    n_folds: int,
    random_state: int,
    relevant: float | None,
) -> tuple[Whole, Sequence[Judging]]:
    known = None if propensities is None else as_propensities(log, propensities)
    return Part(log, known), list(
        split(log, known, n_folds=n_folds, random_state=random_state, relevant=relevant)
    )


def _summarize(
    settings: list[Setting], results: list[tuple[Setting, Setting]], *, higher_is_better: bool
) -> list[Setting]:
    rows = []
    for setting in settings:
        own = [result for done, result in results if done == setting]
        scores = [result["score"] for result in own]
        spent = {
            "n_iter": sum(result["n_iter"] for result in own),
            "seconds": sum(result["seconds"] for result in own),
        }
        rows.append(
            setting
            | {"score": float(np.mean(scores)), "std": float(np.std(scores, ddof=1))}
            | spent
        )
    return sorted(rows, key=lambda row: row["score"], reverse=higher_is_better)
