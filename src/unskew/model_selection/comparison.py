"""Learners against one another, on a test that was drawn uniformly at random."""

from __future__ import annotations

import json
import math
import re
import time
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from scipy import special

from unskew.data.checks import whole_number
from unskew.data.frames import make_frame
from unskew.data.propensities import PropensitiesLike
from unskew.data.ratings import Ratings
from unskew.data.result import describe_json
from unskew.errors import PropensityWarning, UnknownNameError, UsageError
from unskew.evaluation.arguments import require_level
from unskew.evaluation.random_test import (
    EmptyUsers,
    Judgement,
    auc,
    estimate_of,
    mean_of,
    ndcg,
    relevant_cells,
    scores_of,
    user_auc,
)
from unskew.metrics.rating import absolute_error, squared_error
from unskew.model_selection.search import CrossValidation, cross_validate
from unskew.models.matrix_factorization import MatrixFactorization
from unskew.plugins import load_report_function
from unskew.progress import Track, no_progress, progress_bar
from unskew.tables import count_noun, html_table, text_table
from unskew.types import Vector

Judge: TypeAlias = Callable[[Ratings, Vector], Judgement]
Row: TypeAlias = dict[str, Any]
LOG_MEAN, BEST_CONSTANT, NO_OFFSETS = "mean of the log", "best constant", "naive, no offsets"
ADDED = (LOG_MEAN, BEST_CONSTANT, NO_OFFSETS)
"""Rows of every table; no learner may take their names."""


@dataclass(frozen=True, slots=True, eq=False)
class Learner:
    """A model to fit, and how its settings are chosen."""

    model: Any
    grid: Mapping[str, Sequence[Any]] | None = None
    """Values of settings, of which cross-validation on the training log chooses; None fits the model as it is."""
    is_naive: bool = False
    """Whether it is fitted, and chosen, without propensities."""
    propensities: Any = None
    """Its own, in place of those of the comparison: a matrix, say, where a learner needs all cells."""
    tuned_as: Any = None
    """The model that the grid is tried with, where folds cannot give ``model`` what it needs; both have these settings."""


NO_OFFSETS_LEARNER = Learner(
    MatrixFactorization(20, offsets="none"),
    {"n_factors": (5, 20), "l2": (0.2, 1.0, 5.0, 25.0)},
    is_naive=True,
)
"""Shrinks towards 0, and tests have lower ratings than logs: without propensities it is hard to beat, and always in the table."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class LearnerComparison:
    """What :func:`compare_learners` found: a row for each test, metric and learner."""

    rows: Sequence[Mapping[str, Any]]
    reference: str
    n_seeds: int
    level: float
    n_seen: Mapping[str, int] = field(default_factory=dict)
    """By test: how many of its cells are in the training log, too."""
    models: Mapping[str, Any] = field(default_factory=dict)
    """By learner: the model of the first seed, fitted to the whole log."""

    def row(self, learner: str, *, metric: str, test: str = "test") -> Mapping[str, Any]:
        """One row."""
        for row in self.rows:
            if (row["learner"], row["metric"], row["test"]) == (learner, metric, test):
                return row
        known = dict.fromkeys(
            f"{row['learner']}, {row['metric']}, {row['test']}" for row in self.rows
        )
        raise UnknownNameError("row", f"{learner}, {metric}, {test}", known)

    def to_columns(self) -> dict[str, list[Any]]:
        """The rows, column by column; what was chosen is text."""
        return {name: [row[name] for row in self.rows] for name in self.rows[0]}

    def to_frame(self, backend: str | None = None) -> Any:
        """The table as a data frame."""
        return make_frame(self.to_columns(), backend)

    def to_json(self) -> str:
        """The table, and how it was made."""
        made = {
            "reference": self.reference,
            "seeds": self.n_seeds,
            "level": self.level,
            "n_seen": dict(self.n_seen),
        }
        return json.dumps(
            describe_json("learners") | made | {"rows": [dict(row) for row in self.rows]}
        )

    def to_html(self, path: str | Path) -> Path:
        """One page for people, without links to anything."""
        page: Path = load_report_function("write_page")(self.to_json(), path)
        return page

    def __repr__(self) -> str:
        return f"{text_table(self._shown())}\n{self._footer()}"

    def _repr_html_(self) -> str:
        return f"{html_table(self._shown())}<p>{self._footer()}</p>"

    def _shown(self) -> dict[str, list[Any]]:
        columns = self.to_columns()
        dropped = {"std_error", "seed_low", "seed_high", "p_value"} | (
            {"test"} if len(set(columns["test"])) == 1 else set()
        )
        return {
            name: ["" if value is None else value for value in values]
            for name, values in columns.items()
            if name not in dropped
        }

    def _footer(self) -> str:
        seen = "".join(
            f"; {n:,} cells of {name!r} are in the training log, too"
            for name, n in self.n_seen.items()
            if n
        )
        return (
            f"{count_noun(self.n_seeds, 'seed')}; {self.level:.0%} intervals of the mean over seeds, users of the test being the "
            f"sample; difference to {self.reference!r} paired by user, p by Holm; seconds a seed, with the search{seen}"
        )


def compare_learners(
    log: Ratings,
    test: Ratings | Mapping[str, Ratings],
    learners: Mapping[str, Any],
    propensities: PropensitiesLike | None = None,
    *,
    seeds: int = 10,
    metrics: Sequence[str] = ("mse", "mae"),
    relevant: float | None = None,
    empty_users: EmptyUsers = "drop",
    reference: str | None = None,
    n_folds: int = 4,
    estimator: str = "ips",
    level: float = 0.95,
    n_threads: int | None = None,
    verbose: bool = False,
) -> LearnerComparison:
    """Fit every learner to the log once a seed, and judge them all on a test that was drawn uniformly at random.

    Parameters
    ----------
    log, propensities
        What is learned from. Settings are chosen on the log alone.
    test
        What is judged on, or several tests by name: with and without cells that are in the log too, say.
    learners
        By name: a model; ``(model, grid)``, whose settings are then chosen anew for each seed by cross-validation on the log; or
        a :class:`Learner`, which says more. The mean of the log, the best constant (which knows the test) and the naive
        factorisation without offsets are always added.
    seeds
        How many: of folds, and of where fits start.
    metrics
        ``mse mae``, and with ``relevant``, ratings from which on cells are relevant, ``auc user_auc ndcg@k`` of the test items.
    empty_users
        What a user without a relevant test item counts in ``ndcg@k``: ``"drop"``, ``"one"`` or ``"zero"``.
    reference
        The learner that the others are compared with; by default the first.
    n_folds, estimator
        Of the cross-validation, which judges by the first metric if that is a loss, else by mse.
    level
        Confidence level of the intervals.

    The mean over seeds has an interval over seeds (``seed_low`` to ``seed_high``, Student's t) and one over users (``ci_low`` to
    ``ci_high``), for which every user's loss is first averaged over seeds; so is the difference, which is paired by user.
    ``p_holm`` allows for the number of learners that are compared. ``cross_validated`` is the risk by which settings were chosen,
    from the log alone: among learners with the same propensities it says which one to take, before anybody looks at a test.
    """
    whole_number("seeds", seeds, least=1)
    require_level(level)
    judges = {name: _judge(name, relevant, empty_users) for name in _some("metrics", metrics)}
    tests = (
        {"test": test}
        if isinstance(test, Ratings)
        else {name: test[name] for name in _some("tests", test)}
    )
    contenders = _contenders(learners)
    chosen_reference = next(iter(contenders)) if reference is None else reference
    if chosen_reference not in contenders:
        raise UnknownNameError("reference", chosen_reference, contenders)
    loss = metrics[0] if metrics[0] in ERRORS else "mse"
    search = partial(
        cross_validate, n_folds=n_folds, estimator=estimator, metric=loss, n_threads=n_threads
    )
    jobs = [(name, seed) for name in contenders for seed in range(seeds)]
    track: Track = progress_bar if verbose else no_progress
    fits: dict[str, list[_Fit]] = {name: [] for name in contenders}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PropensityWarning)
        for name, seed in track(jobs, label="learners", total=len(jobs)):
            fits[name].append(_fit(contenders[name], log, propensities, seed, search, tests))
    rows = [
        row
        for place, each in tests.items()
        for metric, judge in judges.items()
        for row in _rows(
            place,
            metric,
            _Scored.of(log, each, place, metric, judge, fits),
            chosen_reference,
            level,
        )
    ]
    models = {name: made[0].model for name, made in fits.items()}
    n_seen = {name: models[NO_OFFSETS].n_seen(each) for name, each in tests.items()}
    return LearnerComparison(rows, chosen_reference, seeds, level, n_seen, models)


ERRORS: Mapping[str, Callable[[Vector, Vector], Vector]] = {
    "mse": squared_error,
    "mae": absolute_error,
}
BEST: Mapping[str, Callable[[Vector], float]] = {
    "mse": lambda rating: float(rating.mean()),
    "mae": lambda rating: float(np.median(rating)),
}


def _judge(name: str, relevant: float | None, empty_users: EmptyUsers) -> Judge:
    if name in ERRORS:
        return lambda test, score: mean_of(test, ERRORS[name](test.rating, score))
    top = re.fullmatch(r"ndcg@([1-9]\d{0,8})", name)
    if name not in ("auc", "user_auc") and top is None:
        raise UnknownNameError("metric of a test", name, (*ERRORS, "auc", "user_auc", "ndcg@k"))
    if relevant is None:
        raise UsageError(
            f"{name} asks which test items are relevant: pass relevant=4, for example, to count ratings of 4 and more."
        )
    if top is not None:
        k = int(top[1])
        return lambda test, score: ndcg(
            test, score, relevant_cells(test, relevant), k=k, empty_users=empty_users
        )
    area = {"auc": auc, "user_auc": user_auc}[name]
    return lambda test, score: area(test, score, relevant_cells(test, relevant))


def _some(what: str, names: Collection[str]) -> Collection[str]:
    if not names:
        raise UsageError(f"there are no {what}: name at least one.")
    return names


def _contenders(learners: Mapping[str, Any]) -> dict[str, Learner]:
    taken = [name for name in learners if name in ADDED]
    if taken:
        raise UsageError(f"{taken[0]!r} is a row of every table. Call the learner something else.")
    return {name: _learner(given) for name, given in learners.items()} | {
        NO_OFFSETS: NO_OFFSETS_LEARNER
    }


def _learner(given: Any) -> Learner:
    if isinstance(given, Learner):
        return given
    if isinstance(given, tuple):
        return Learner(*given)
    return Learner(given)


@dataclass(frozen=True, slots=True, eq=False)
class _Fit:
    """One learner of one seed, and what it says of every test."""

    model: Any
    chosen: Row
    promised: float | None
    """The risk by which cross-validation chose."""
    seconds: float
    scores: Mapping[str, Vector]


def _fit(
    learner: Learner,
    log: Ratings,
    given: PropensitiesLike | None,
    seed: int,
    search: Callable[..., CrossValidation],
    tests: Mapping[str, Ratings],
) -> _Fit:
    began = time.perf_counter()
    propensities = (
        None
        if learner.is_naive
        else given
        if learner.propensities is None
        else learner.propensities
    )
    model, chosen, promised = _seeded(learner.model, seed), {}, None
    if learner.grid:
        tried, known = (
            (model, propensities)
            if learner.tuned_as is None
            else (_seeded(learner.tuned_as, seed), given)
        )
        found = search(
            tried, log, known, grid=learner.grid, random_state=seed, refit=learner.tuned_as is None
        )
        chosen, promised = found.best_params, found.best_score
        fitted = found.best_model or model.set_params(**chosen).fit(log, propensities)
    else:
        fitted = model.fit(log, propensities)
    seconds = time.perf_counter() - began
    return _Fit(
        fitted,
        chosen,
        promised,
        seconds,
        {name: scores_of(fitted, test) for name, test in tests.items()},
    )


def _seeded(model: Any, seed: int) -> Any:
    fresh = copy(model)
    return fresh.set_params(random_state=seed) if "random_state" in fresh.get_params() else fresh


@dataclass(frozen=True, slots=True, eq=False)
class _Scored:
    """One metric on one test: judgements by learner and seed, and what each learner cost and chose."""

    judged: Mapping[str, Sequence[Judgement]]
    promised: Mapping[str, float | None]
    seconds: Mapping[str, float]
    chosen: Mapping[str, str]

    @classmethod
    def of(
        cls,
        log: Ratings,
        test: Ratings,
        place: str,
        metric: str,
        judge: Judge,
        fits: Mapping[str, Sequence[_Fit]],
    ) -> _Scored:
        """Learners first, then the constants."""
        judged = {
            name: [judge(test, fit.scores[place]) for fit in made] for name, made in fits.items()
        }
        constants = {
            LOG_MEAN: float(log.rating.mean()),
            BEST_CONSTANT: BEST.get(metric, BEST["mse"])(test.rating),
        }
        judged |= {
            name: [judge(test, np.full(len(test), value))] for name, value in constants.items()
        }
        promised = {name: _mean([fit.promised for fit in made]) for name, made in fits.items()}
        seconds = {
            name: float(np.mean([fit.seconds for fit in made])) for name, made in fits.items()
        }
        return cls(
            judged,
            promised,
            seconds,
            {name: _agreed([fit.chosen for fit in made]) for name, made in fits.items()},
        )

    def mean(self, name: str) -> Judgement:
        """The mean over seeds, of the value and of every user's influence."""
        own = self.judged[name]
        value, influence = (
            np.mean([getattr(each, part) for each in own], axis=0)
            for part in ("value", "influence")
        )
        return replace(own[0], value=float(value), influence=influence)


def _rows(place: str, metric: str, scored: _Scored, reference: str, level: float) -> Iterator[Row]:
    names = list(scored.judged)
    estimate = estimate_of([scored.mean(name) for name in names])
    differences = {
        name: estimate.difference(names.index(name), names.index(reference), level=level)
        for name in names
    }
    others = [name for name in names if name not in (reference, BEST_CONSTANT)]
    holm = dict(zip(others, _holm([differences[name].p_value for name in others]), strict=True))
    for number, name in enumerate(names):
        interval, difference, is_reference = (
            estimate.of(number, level=level),
            differences[name],
            name == reference,
        )
        spread = _spread([each.value for each in scored.judged[name]], level)
        yield {
            "test": place,
            "metric": metric,
            "learner": name,
            "mean": interval.value,
            **spread,
            "std_error": interval.std_error,
            "ci_low": interval.low,
            "ci_high": interval.high,
            "difference": None if is_reference else difference.value,
            "difference_low": None if is_reference else difference.low,
            "difference_high": None if is_reference else difference.high,
            "p_value": None if is_reference else difference.p_value,
            "p_holm": holm.get(name),
            "cross_validated": scored.promised.get(name),
            "seconds": scored.seconds.get(name),
            "chosen": scored.chosen.get(name, ""),
        }


def _spread(values: Sequence[float], level: float) -> Row:
    """The deviation over seeds, and the interval of their mean; None of both for one seed."""
    if len(values) < 2:
        return {"std_over_seeds": None, "seed_low": None, "seed_high": None}
    mean, std = float(np.mean(values)), float(np.std(values, ddof=1))
    reach = float(special.stdtrit(len(values) - 1, (1 + level) / 2)) * std / math.sqrt(len(values))
    return {"std_over_seeds": std, "seed_low": mean - reach, "seed_high": mean + reach}


def _holm(p_values: Sequence[float]) -> list[float]:
    """Holm's adjustment: the smallest times their number, the next times one less, ..., never falling, at most 1."""
    order = np.argsort(p_values, kind="stable")
    steps = np.maximum.accumulate(np.asarray(p_values)[order] * np.arange(len(p_values), 0, -1))
    adjusted = np.empty(len(p_values))
    adjusted[order] = np.minimum(steps, 1.0)
    found: list[float] = adjusted.tolist()
    return found


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


def _agreed(chosen: Sequence[Row]) -> str:
    """What was chosen most often, and how often, where seeds differ."""
    texts = Counter(", ".join(f"{name}={value}" for name, value in each.items()) for each in chosen)
    text, count = texts.most_common(1)[0]
    return text if count == len(chosen) else f"{text} ({count} of {len(chosen)} seeds)"
