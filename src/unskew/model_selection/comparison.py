"""``compare_learners``: learners on a test set that was drawn uniformly at random."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, TypeAlias

import numpy as np
from scipy import special

from unskew.data.checks import float_array
from unskew.data.propensities import PropensitiesLike, as_propensities
from unskew.data.ratings import Ratings, require_log
from unskew.data.result import DrawableResult
from unskew.errors import (
    BadPredictionError,
    UnknownNameError,
    UnskewError,
    UnskewWarning,
    UsageError,
    warn_caller,
)
from unskew.estimators.intervals import adjust_p_values
from unskew.evaluation.arguments import find_metrics, require_level
from unskew.evaluation.random_test import compute_test_delta, estimate_on_test
from unskew.metrics.logged import EMPTY_USER_VALUES, EmptyUsers
from unskew.metrics.metric import Delta, Metric
from unskew.model_selection.combinations import combine_settings
from unskew.model_selection.fit_warnings import (
    count_unconverged,
    recorded_warnings,
    repeat_warnings,
)
from unskew.model_selection.grids import L2
from unskew.model_selection.learners import Learner
from unskew.model_selection.search import CrossValidation, cross_validate
from unskew.models.matrix_factorization import MatrixFactorization
from unskew.progress import Track, no_progress, progress_bar
from unskew.settings import (
    Flag,
    Instance,
    OneOf,
    WholeNumber,
    check_random_state,
    describe,
    draw_seeds,
    require_name,
    unfitted_copy,
)
from unskew.tables import count_noun
from unskew.types import RandomState, Vector

Row: TypeAlias = dict[str, Any]
DeltasByTest: TypeAlias = dict[str, dict[str, Delta]]
"""By name of the test, then by name of the metric."""
LOG_MEAN, BEST_CONSTANT, NO_OFFSETS = "mean of the log", "best constant", "naive, no offsets"
ADDED = (LOG_MEAN, BEST_CONSTANT, NO_OFFSETS)
"""Rows of every table; a learner cannot have these names."""
SEARCH_METRICS = ("mse", "mae")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class LearnerComparison(DrawableResult):
    """The result of :func:`compare_learners`: a row for each test, metric and learner."""

    kind: ClassVar[str] = "learners"
    rows: Sequence[Mapping[str, Any]]
    reference: str
    n_repeats: int
    level: float
    n_seen: Mapping[str, int] = field(default_factory=dict)
    """By test: how many of its cells are also in the training log."""
    models: Mapping[str, Any] = field(default_factory=dict)
    """By learner: the model of the first repetition, fitted to the whole log."""
    failures: Sequence[Mapping[str, str]] = ()
    """Learners without a number: learner and reason."""
    backend: str | None = None

    def row(self, learner: str, *, metric: str, test: str = "test") -> Mapping[str, Any]:
        """The row of one learner, metric and test."""
        names = {"learner": learner, "metric": metric, "test": test}
        for column, name in names.items():
            valid = dict.fromkeys(row[column] for row in self.rows)
            require_name(f"{column} of this comparison", name, valid, parameter=column)
        for row in self.rows:
            if all(row[column] == name for column, name in names.items()):
                return row
        raise UsageError(
            f"learner {learner!r} has no row for metric {metric!r} and test {test!r}.",
            parameter="learner",
            value=learner,
            remedy="The rows of the comparison list what was computed.",
        )

    def to_columns(self) -> dict[str, list[Any]]:
        """The rows by columns; the chosen settings are text."""
        return {name: [row[name] for row in self.rows] for name in self.rows[0]}

    def to_record(self) -> dict[str, Any]:
        """The table, and how it was computed."""
        return {
            "reference": self.reference,
            "n_repeats": self.n_repeats,
            "level": self.level,
            "n_seen": dict(self.n_seen),
            "rows": [dict(row) for row in self.rows],
            "failures": [dict(row) for row in self.failures],
        }

    def _shown_columns(self) -> dict[str, list[Any]]:
        columns = self.to_columns()
        hidden = {"std_error", "repeat_low", "repeat_high", "p_value"}
        if len(set(columns["test"])) == 1:
            hidden.add("test")
        return {
            name: ["" if value is None else value for value in values]
            for name, values in columns.items()
            if name not in hidden
        }

    def _footer(self) -> list[str]:
        seen = "".join(
            f"; {n:,} cells of {name!r} are also in the training log"
            for name, n in self.n_seen.items()
            if n
        )
        return [
            f"means over {count_noun(self.n_repeats, 'repetition')}; {self.level:.0%} intervals "
            f"with test users as the sample; difference to {self.reference!r} paired by user, "
            f"p-values adjusted by Holm; seconds per repetition, with the search{seen}",
            *(f"{row['learner']} has no number: {row['reason']}" for row in self.failures),
        ]


def compare_learners(
    log: Ratings,
    learners: Mapping[str, Any],
    *,
    test: Ratings | Mapping[str, Ratings],
    propensities: PropensitiesLike | None = None,
    n_repeats: int = 10,
    random_state: RandomState = 0,
    metrics: Sequence[str] = ("mse", "mae"),
    relevance_threshold: float | None = None,
    empty_users: EmptyUsers = "drop",
    reference: str | None = None,
    n_folds: int = 4,
    estimator: str = "ips",
    level: float = 0.95,
    n_threads: int | None = None,
    verbose: bool = False,
) -> LearnerComparison:
    """Fit every learner to the log, and evaluate all on a test that was drawn uniformly at random.

    Parameters
    ----------
    log
        The training ratings. Settings are chosen with these alone.
    learners
        By name: a model; ``(model, grid)``, whose settings are chosen by cross-validation on the
        log, in every repetition; or a :class:`Learner`. The mean of the log, the best constant
        (computed from the test) and the naive factorisation without offsets are always added.
    test
        The ratings to evaluate on, or several tests by name.
    propensities
        Of the log.
    n_repeats
        How often everything is repeated, with different folds and different starts of the fits.
    random_state
        Seed of the first repetition, the following ones use the numbers above; or a generator.
    metrics
        ``mse``, ``mae``, and with ``relevance_threshold`` also ``logged_auc``,
        ``logged_user_auc`` and ``logged_ndcg@k`` of the test items.
    relevance_threshold
        Ratings of at least this are relevant.
    empty_users
        The ``logged_ndcg@k`` of a user without a relevant test item: ``"one"``, ``"zero"``, or
        ``"drop"`` to ignore such users.
    reference
        The learner that the others are compared with; by default the first.
    n_folds, estimator
        Of the cross-validation. Its metric is the first of ``metrics`` if that is ``mse`` or
        ``mae``, else ``mse``.
    level
        Confidence level of the intervals.
    n_threads, verbose
        See :func:`cross_validate`.

    Returns
    -------
    LearnerComparison
        A table with a row for each test, metric and learner.

    Notes
    -----
    The mean over repetitions has an interval over repetitions (``repeat_low`` to ``repeat_high``,
    Student's t) and one over users (``ci_low`` to ``ci_high``). For the latter, and for the
    difference to the reference, each user's loss is first averaged over repetitions. ``p_holm`` is
    adjusted for the number of learners. ``cv_score`` is the risk by which settings were chosen,
    estimated from the log alone. It can be used to choose among learners with the same
    propensities without a test.

    A learner whose fit fails on this log is left out with a warning, and named in ``failures``.
    A failure of the reference is an error, and so is a grid with an unknown setting.

    Examples
    --------
    >>> import numpy as np
    >>> from unskew.models.baselines import GlobalMean, OffsetsOnly
    >>> from unskew.simulation.simulator import simulate
    >>> world = simulate(60, 80, density=0.1, alpha=0.5, random_state=0)
    >>> log = world.log.take(world.log.item < 70)    # the other items are for the random test
    >>> user, item = np.repeat(np.arange(60), 10), np.tile(np.arange(70, 80), 60)
    >>> test = Ratings.from_arrays(user, item, world.truth[user, item])
    >>> learners = {"offsets": OffsetsOnly(), "mean": GlobalMean()}
    >>> sorted(compare_learners(log, learners, test=test, n_repeats=2).models)
    ['mean', 'naive, no offsets', 'offsets']
    """
    require_log(log)
    Instance(Mapping, remedy="Pass a dict of models by name.")("learners", learners)
    Flag()("verbose", verbose)
    WholeNumber(least=1)("n_repeats", n_repeats)
    check_random_state("random_state", random_state)
    require_level(level)
    OneOf(tuple(EMPTY_USER_VALUES))("empty_users", empty_users)
    if propensities is not None:
        as_propensities(log, propensities)
    _require_models(learners)
    chosen = _find_test_metrics(metrics, relevance_threshold, empty_users)
    tests = _read_tests(test)
    constants = _constant_deltas(log, tests, chosen)
    contenders = _contenders(learners)
    first = next(iter(contenders)) if reference is None else reference
    if not isinstance(first, str) or first not in contenders:
        raise UnknownNameError("reference", first, contenders)
    search = partial(
        cross_validate,
        n_folds=n_folds,
        estimator=estimator,
        metric=chosen[0].name if chosen[0].name in SEARCH_METRICS else "mse",
        extend_grid=False,
        n_threads=n_threads,
    )
    seeds = draw_seeds(random_state, n_repeats)
    jobs = [(name, seed) for name in contenders for seed in seeds]
    track: Track = progress_bar if verbose else no_progress
    fits: dict[str, list[_LearnerFit]] = {name: [] for name in contenders}
    failures: dict[str, str] = {}
    n_unconverged, all_caught = 0, []
    for name, seed in track(jobs, label="learners", total=len(jobs)):
        if name in failures:
            continue
        try:
            with recorded_warnings() as caught:
                fit = _fit_learner(contenders[name], log, propensities, seed, search)
                fits[name].append(fit.with_deltas(tests, chosen))
        except UnskewError as error:
            if name in (first, NO_OFFSETS):
                raise
            failures[name] = str(error).splitlines()[0]
            del fits[name]
            warn_caller(UnskewWarning(f"{name!r} is left out: {failures[name]}"))
            continue
        n_unconverged += count_unconverged(caught) > 0
        all_caught += caught
    repeat_warnings(
        all_caught,
        n_unconverged=n_unconverged,
        n_fits=len(jobs),
        fits="fits (with the search for settings)",
    )
    rows = [
        row
        for test_name, ratings in tests.items()
        for metric in chosen
        for row in _rows(
            {"test": test_name, "metric": metric.name}, ratings, fits, constants, first, level
        )
    ]
    models = {name: of_learner[0].model for name, of_learner in fits.items()}
    n_seen = {name: models[NO_OFFSETS].count_seen(ratings) for name, ratings in tests.items()}
    reasons = [{"learner": name, "reason": reason} for name, reason in failures.items()]
    return LearnerComparison(rows, first, n_repeats, level, n_seen, models, reasons, log.backend)


def _require_models(learners: Mapping[str, Any]) -> None:
    """Raise an error unless each learner is, or begins with, a model."""
    for learner in learners.values():
        model = learner.model if isinstance(learner, Learner) else learner
        model = model[0] if isinstance(model, tuple) and model else model
        if not hasattr(model, "get_params") or isinstance(model, type):
            raise UsageError(
                f"`learners` must be a dict of models by name; got {describe(learner)} as a model.",
                parameter="learners",
                value=learner,
                remedy="Pass objects such as MatrixFactorization().",
            )


def _read_tests(test: Ratings | Mapping[str, Ratings]) -> Mapping[str, Ratings]:
    """The random tests by name; an error if there is none."""
    tests = {"test": test} if isinstance(test, Ratings) else test
    if not isinstance(tests, Mapping) or not all(
        isinstance(each, Ratings) for each in tests.values()
    ):
        raise UsageError(
            f"`test` must be unskew.Ratings, or a dict of them by name; got {describe(test)}.",
            parameter="test",
            value=test,
            remedy="Build a log with Ratings.from_frame(frame).",
        )
    if not tests:
        raise UsageError(
            "`test` contains no test sets.",
            parameter="test",
            remedy="Pass a Ratings object, or a dict {name: Ratings} with at least one entry.",
        )
    return tests


def _find_test_metrics(
    names: Sequence[str], relevance_threshold: float | None, empty_users: EmptyUsers
) -> list[Metric]:
    """The named metrics, with ``empty_users`` for ndcg; an error if one needs all items."""
    metrics = find_metrics(names, relevance_threshold=relevance_threshold)
    for metric in metrics:
        if metric.ranks:
            raise UsageError(
                f"{metric.name!r} needs positions among all items, but a test has "
                "ratings of only some items.",
                parameter="metrics",
                value=metric.name,
                remedy="Use a rating metric, logged_auc, logged_user_auc or logged_ndcg@k.",
            )
    return [_with_empty_users(metric, empty_users) for metric in metrics]


def _with_empty_users(metric: Any, empty_users: str) -> Metric:
    """The metric with this rule for users without relevant items, if it has such a rule."""
    has_rule = hasattr(metric, "empty_users")
    changed: Metric = replace(metric, empty_users=empty_users) if has_rule else metric
    return changed


def _compute_deltas(
    predictions: Vector, test: Ratings, metrics: Sequence[Metric]
) -> dict[str, Delta]:
    """The delta of every metric, by name."""
    return {metric.name: compute_test_delta(test, metric, predictions) for metric in metrics}


def _constant_deltas(
    log: Ratings, tests: Mapping[str, Ratings], metrics: Sequence[Metric]
) -> dict[str, DeltasByTest]:
    """The deltas of the two constants. The best one is the median for mae, else the mean."""
    constants: dict[str, DeltasByTest] = {LOG_MEAN: {}, BEST_CONSTANT: {}}
    for name, test in tests.items():
        size, mean = len(test), float(log.rating.mean())
        constants[LOG_MEAN][name] = _compute_deltas(np.full(size, mean), test, metrics)
        constants[BEST_CONSTANT][name] = {}
        for metric in metrics:
            best = np.median(test.rating) if metric.name == "mae" else test.rating.mean()
            deltas = _compute_deltas(np.full(size, float(best)), test, [metric])
            constants[BEST_CONSTANT][name] |= deltas
    return constants


def _predict(model: Any, test: Ratings) -> Vector:
    predictions = float_array(
        model.predict(test.users[test.user], test.items[test.item]),
        "predictions",
        BadPredictionError,
    )
    if predictions.shape != (len(test),) or not np.isfinite(predictions).all():
        raise BadPredictionError(
            f"{model!r} must predict a finite number for each of {len(test)} test cells; it "
            f"returned {int(np.isfinite(predictions).sum())} in an array of shape "
            f"{predictions.shape}."
        )
    return predictions


def _contenders(learners: Mapping[str, Any]) -> dict[str, Learner]:
    for name in ADDED:
        if name in learners:
            raise UsageError(
                f"{name!r} is the name of a row that every comparison has.",
                parameter="learners",
                value=name,
                remedy="Give the learner another name.",
            )
    contenders = {name: _as_learner(learner) for name, learner in learners.items()}
    for learner in contenders.values():
        if learner.grid:
            combine_settings(learner.tuned_as or learner.model, learner.grid)
    return contenders | {NO_OFFSETS: _make_baseline(contenders.values())}


def _make_baseline(rivals: Iterable[Learner]) -> Learner:
    """The naive factorisation without offsets, with every ``l2`` that a rival may choose.

    A strong baseline: it shrinks predictions towards 0, and the ratings of random tests are lower
    than those of logs.
    """
    tried = {value for rival in rivals for value in (rival.grid or {}).get("l2", ())}
    penalties = tuple(sorted({*L2, *(value for value in tried if value != "auto")}))
    model = MatrixFactorization(offsets="none", clip_predictions=False, tol=1e-5, max_iter=2000)
    return Learner(model, {"l2": penalties}, is_naive=True)


def _as_learner(learner: Any) -> Learner:
    if isinstance(learner, Learner):
        return learner
    return Learner(*learner) if isinstance(learner, tuple) else Learner(learner)


@dataclass(frozen=True, slots=True, eq=False)
class _LearnerFit:
    """One learner, fitted in one repetition."""

    model: Any
    chosen: Row
    cv_score: float | None
    """The score by which cross-validation chose the settings."""
    seconds: float
    deltas: DeltasByTest = field(default_factory=dict)

    def with_deltas(self, tests: Mapping[str, Ratings], metrics: Sequence[Metric]) -> _LearnerFit:
        """The same with the deltas of its predictions for the tests."""
        deltas = {
            name: _compute_deltas(_predict(self.model, test), test, metrics)
            for name, test in tests.items()
        }
        return replace(self, deltas=deltas)


def _fit_learner(
    learner: Learner,
    log: Ratings,
    propensities: PropensitiesLike | None,
    seed: int,
    search: Callable[..., CrossValidation],
) -> _LearnerFit:
    start = time.perf_counter()
    of_learner = propensities if learner.propensities is None else learner.propensities
    if learner.is_naive:
        of_learner = None
    model = _with_seed(learner.model, seed)
    if not learner.grid:
        fitted = model.fit(log, of_learner)
        return _LearnerFit(fitted, {}, None, time.perf_counter() - start)
    has_stand_in = learner.tuned_as is not None
    choice = search(
        _with_seed(learner.tuned_as, seed) if has_stand_in else model,
        log,
        propensities=propensities if has_stand_in else of_learner,
        grid=learner.grid,
        random_state=seed,
        refit=not has_stand_in,
    )
    fitted = choice.best_model
    if has_stand_in:
        fitted = model.set_params(**choice.best_params).fit(log, of_learner)
    seconds = time.perf_counter() - start
    return _LearnerFit(fitted, choice.best_params, choice.best_score, seconds)


def _with_seed(model: Any, seed: int) -> Any:
    copy = unfitted_copy(model)
    return copy.set_params(random_state=seed) if "random_state" in copy.get_params() else copy


def _rows(
    key: dict[str, str],
    test: Ratings,
    fits: Mapping[str, Sequence[_LearnerFit]],
    constants: Mapping[str, DeltasByTest],
    reference: str,
    level: float,
) -> Iterator[Row]:
    """The rows of one test and one metric, which ``key`` names."""
    deltas = {
        name: [fit.deltas[key["test"]][key["metric"]] for fit in of_learner]
        for name, of_learner in fits.items()
    } | {name: [by_test[key["test"]][key["metric"]]] for name, by_test in constants.items()}
    names = list(deltas)
    estimate = estimate_on_test(test, [_mean_delta(repeats) for repeats in deltas.values()])
    differences = {
        name: estimate.difference(number, names.index(reference), level=level)
        for number, name in enumerate(names)
        if name != reference
    }
    others = [name for name in differences if name != BEST_CONSTANT]
    adjusted = adjust_p_values([differences[name].p_value for name in others])
    p_holm = dict(zip(others, adjusted, strict=True))
    for number, name in enumerate(names):
        interval, difference = estimate.of(number, level=level), differences.get(name)
        yield {
            **key,
            "learner": name,
            "mean": interval.value,
            **_spread(estimate_on_test(test, deltas[name]).value.tolist(), level),
            "std_error": interval.std_error,
            "ci_low": interval.low,
            "ci_high": interval.high,
            "difference": None if difference is None else difference.value,
            "difference_low": None if difference is None else difference.low,
            "difference_high": None if difference is None else difference.high,
            "p_value": None if difference is None else difference.p_value,
            "p_holm": p_holm.get(name),
            **_describe_fits(fits.get(name, ())),
        }


def _mean_delta(deltas: Sequence[Delta]) -> Delta:
    """The mean over repetitions. Their base is the same, since it depends on the test only."""
    return replace(deltas[0], value=np.mean([delta.value for delta in deltas], axis=0))


def _spread(values: Sequence[float], level: float) -> Row:
    """The standard deviation over repetitions and the interval of their mean; None for one."""
    if len(values) < 2:
        return {"std_over_repeats": None, "repeat_low": None, "repeat_high": None}
    mean, std = float(np.mean(values)), float(np.std(values, ddof=1))
    quantile = float(special.stdtrit(len(values) - 1, (1 + level) / 2))
    half_width = quantile * std / math.sqrt(len(values))
    return {
        "std_over_repeats": std,
        "repeat_low": mean - half_width,
        "repeat_high": mean + half_width,
    }


def _describe_fits(fits: Sequence[_LearnerFit]) -> Row:
    """Mean score of the cross-validation, mean seconds, and the settings chosen most often."""
    if not fits:
        return {"cv_score": None, "seconds": None, "chosen": ""}
    scores = [fit.cv_score for fit in fits if fit.cv_score is not None]
    texts = Counter(
        ", ".join(f"{name}={value}" for name, value in fit.chosen.items()) for fit in fits
    )
    text, count = texts.most_common(1)[0]
    return {
        "cv_score": float(np.mean(scores)) if scores else None,
        "seconds": float(np.mean([fit.seconds for fit in fits])),
        "chosen": text if count == len(fits) else f"{text} ({count} of {len(fits)} repetitions)",
    }
