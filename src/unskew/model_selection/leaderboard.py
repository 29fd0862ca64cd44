"""``rank_learners``: every declared learner under the same protocols, with ties shown as such."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from typing import Any, ClassVar, TypeAlias

import numpy as np

from unskew.data.ratings import Ratings
from unskew.data.result import DrawableResult
from unskew.errors import UsageError
from unskew.estimators.estimate import Estimate, Interval
from unskew.estimators.intervals import adjust_p_values
from unskew.evaluation.arguments import find_metrics, require_level
from unskew.evaluation.random_test import compute_test_delta, estimate_on_test
from unskew.metrics.metric import Delta, find_metric
from unskew.model_selection.grids import WRITTEN
from unskew.model_selection.learners import (
    LOSSES,
    Learner,
    LearnerTrial,
    Trial,
    TrialSetup,
    find_learners,
)
from unskew.model_selection.protocols import (
    DEFAULT_PROTOCOLS,
    PROTOCOLS,
    LeaderboardData,
    Protocol,
    RandomTestData,
)
from unskew.model_selection.verdicts import (
    BASELINE,
    BEST,
    MARKS,
    TIE_MEANING,
    TIED,
    WORSE,
    count_seeds,
    format_seeds,
    is_incomplete,
    join_failures,
    list_cautions,
    write_headline,
)
from unskew.progress import StepLines, Track, no_progress, progress_bar, shows_bar
from unskew.settings import (
    Flag,
    Instance,
    WholeNumber,
    describe,
    draw_seeds,
    require_list,
    require_name,
)
from unskew.tables import count_noun, escape_controls, join_words
from unskew.threads import count_threads
from unskew.types import IntVector, Matrix, RandomState, Vector

Row: TypeAlias = dict[str, Any]
BEST_CONSTANT = "best constant"


class LeaderboardInterrupted(KeyboardInterrupt):
    """Ctrl-C during :func:`rank_learners`, after at least one seed was finished."""

    def __init__(self, leaderboard: Leaderboard) -> None:
        seeds = format_seeds(leaderboard.to_record())
        super().__init__(f"interrupted after {seeds}, which `leaderboard` of this exception has")
        self.leaderboard = leaderboard
        """The table of the finished seeds."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Leaderboard(DrawableResult):
    """The result of :func:`rank_learners`: a row for each protocol, metric and learner."""

    kind: ClassVar[str] = "leaderboard"
    rows: Sequence[Mapping[str, Any]]
    """Sorted by protocol and metric, the least error first."""
    data: str
    n_repeats: int
    level: float
    paired_by: str
    """``user`` or ``draw``: the sample of the intervals."""
    failures: Sequence[Mapping[str, str]] = ()
    """Learners without a number: protocol, learner and reason."""
    description: str = ""
    published: Sequence[Mapping[str, Any]] = ()
    grids_written: str = WRITTEN
    """The day on which the grids were written down."""
    warnings: Sequence[str] = ()
    """About the propensities of some seeds, such as those that were limited to 1."""
    backend: str | None = None
    n_planned: int | None = None
    """The number of seeds that were asked for: more than ``n_repeats`` after an interrupt."""

    def __repr__(self) -> str:
        return f"{escape_controls(self.headline)}\n{DrawableResult.__repr__(self)}"

    @property
    def headline(self) -> str:
        """The best learner, those close behind or not told from it, and those without a number."""
        return "".join(text for text, _ in write_headline(self.to_record()))

    def row(self, learner: str, *, protocol: str = "clean", metric: str = "mse") -> Row:
        """The row of one learner, protocol and metric."""
        names = {"learner": learner, "protocol": protocol, "metric": metric}
        for column, name in names.items():
            valid = dict.fromkeys(row[column] for row in self.rows)
            require_name(f"{column} of this leaderboard", name, valid, parameter=column)
        for row in self.rows:
            if all(row[column] == name for column, name in names.items()):
                return dict(row)
        raise UsageError(
            f"learner {learner!r} has no row for protocol {protocol!r} and metric {metric!r}.",
            parameter="learner",
            value=learner,
            remedy="The rows of the leaderboard list what was computed.",
        )

    @property
    def protocols(self) -> list[str]:
        return list(dict.fromkeys(row["protocol"] for row in self.rows))

    def to_columns(self) -> dict[str, list[Any]]:
        """The rows by columns; the chosen settings are text.

        After an interrupt, a column says how many seeds of how many each number is of.
        """
        columns = {name: [row[name] for row in self.rows] for name in self.rows[0]}
        if is_incomplete(self.to_record()):
            columns["seeds"] = [count_seeds(self.to_record())] * len(self.rows)
        return columns

    def to_record(self) -> dict[str, Any]:
        """The table, and how it was computed."""
        return {
            "data": self.data,
            "description": self.description,
            "n_repeats": self.n_repeats,
            "n_planned": self.n_repeats if self.n_planned is None else self.n_planned,
            "level": self.level,
            "paired_by": self.paired_by,
            "grids_written": self.grids_written,
            "protocols": {name: PROTOCOLS[name].summary for name in self.protocols},
            "rows": [dict(row) for row in self.rows],
            "warnings": list(self.warnings),
            "failures": [dict(row) for row in self.failures],
            "published": [dict(row) for row in self.published],
        }

    def _shown_columns(self) -> dict[str, list[Any]]:
        return self.errors_by_protocol()

    def _footer(self) -> list[str]:
        return self.notes()

    def errors_by_protocol(self) -> dict[str, list[Any]]:
        """One row for each learner: its error under each protocol, and what was chosen."""
        metric = self.rows[0]["metric"]
        shown = [row for row in self.rows if row["metric"] == metric]
        names = list(dict.fromkeys(row["learner"] for row in shown))
        by_name = {(row["learner"], row["protocol"]): row for row in shown}
        columns: dict[str, list[Any]] = {f"learner ({metric})": names}
        for protocol in self.protocols:
            columns[protocol] = [_mark(by_name.get((name, protocol))) for name in names]
        first = [by_name.get((name, self.protocols[0])) for name in names]
        for name in ("regret", "chosen"):
            columns[name] = ["" if row is None or row[name] is None else row[name] for row in first]
        return columns

    def notes(self) -> list[str]:
        """What the table means, and which learners have no number."""
        texts = [f"{name}: {PROTOCOLS[name].summary}" for name in self.protocols]
        record = self.to_record()
        return [
            f"{self.data}; means over {format_seeds(record)}; * least error; = cannot be told from "
            f"it, {TIE_MEANING}: paired by {self.paired_by}, Holm's p over all "
            f"pairs of learners is at least {1 - self.level:.2g}",
            *texts,
            f"regret: error of what cross-validation chose in {self.protocols[0]!r} minus the "
            f"least error of the grid; grids written down on {self.grids_written}",
            *(
                f"{join_words(learners)} under {protocols}: {reason}"
                for learners, protocols, reason in join_failures(self.failures)
            ),
            *self.warnings,
            *list_cautions(record),
        ]


def _mark(row: Mapping[str, Any] | None) -> str:
    """An error, with a star for the best learner and an equals sign for its ties."""
    if row is None:
        return ""
    return f"{row['mean']:.3f}{MARKS.get(row['verdict'], '  ')}"


def rank_learners(
    data: LeaderboardData | RandomTestData,
    *,
    learners: Mapping[str, Learner] | Sequence[str] | None = None,
    protocols: Sequence[str] | None = None,
    n_repeats: int = 10,
    random_state: RandomState = 0,
    metrics: Sequence[str] = ("mse", "mae"),
    level: float = 0.95,
    n_threads: int | None = None,
    verbose: bool = False,
) -> Leaderboard:
    """Fit every learner under every protocol, and rank them by their error on a random test.

    Parameters
    ----------
    data
        A log with a test that was drawn uniformly at random, or a world that is drawn anew for
        every seed.
    learners
        By name, or some names of those that take part by default: every declared recommender of
        ratings, each with the grid of ``unskew.model_selection.grids``.
    protocols
        Names of ``unskew.model_selection.protocols.PROTOCOLS``. By default all but ``sample``, and
        ``paper`` only if it differs from ``clean``; without propensities ``sample`` and ``leaky``.
    n_repeats
        The number of seeds. A seed determines folds, starts, the sample of naive Bayes and, in
        worlds that are drawn anew, the log.
    random_state
        The first seed, which the others follow; or a generator that draws them, or None.
    metrics
        ``mse`` and ``mae``. Settings are chosen by ``mse``.
    level
        Of intervals; learners whose adjusted p-value is at least ``1 - level`` are ties: not told
        from the best, which does not say that they are as good.
    n_threads, verbose
        As in :func:`unskew.cross_validate`. Where no bar can be shown, ``verbose`` prints a line
        after every seed.

    Returns
    -------
    Leaderboard
        A learner that cannot be fitted is listed with the reason, and does not stop the others.

    Raises
    ------
    KeyboardInterrupt
        After Ctrl-C. If a seed was finished, its attribute ``leaderboard`` has the table so far.
    """
    WholeNumber(least=1)("n_repeats", n_repeats)
    seeds = draw_seeds(random_state, n_repeats)
    Flag()("verbose", verbose)
    count_threads(n_threads)
    require_level(level)
    if not isinstance(data, RandomTestData | LeaderboardData):
        raise UsageError(
            f"`data` must be RandomTestData; got {describe(data)}.",
            parameter="data",
            value=data,
            remedy="Pass RandomTestData(log, test, propensities), or a LeaderboardData.",
        )
    chosen_metrics = _check_metrics(metrics)
    world = LeaderboardData.of(data) if isinstance(data, RandomTestData) else data
    first = world.draw(seeds[0])
    chosen_protocols = _choose_protocols(protocols, first)
    contenders = _choose_learners(learners, first)
    trials: list[Trial] = []
    has_bar = verbose and shows_bar()
    track: Track = progress_bar if has_bar else no_progress
    lines = StepLines("leaderboard", n_repeats, "seed", is_enabled=verbose and not has_bar)
    summarize = partial(
        summarize_trials,
        trials,
        world,
        chosen_protocols,
        learners=list(contenders),
        metrics=chosen_metrics,
        level=level,
        n_planned=n_repeats,
    )
    jobs = _run_trials(
        world,
        first,
        contenders,
        chosen_protocols,
        chosen_metrics,
        seeds,
        n_threads,
    )
    lines.start(count_noun(len(contenders), "learner"))
    try:
        for is_last, trial in track(jobs, label="leaderboard", total=n_repeats * len(contenders)):
            if is_last:
                trials.append(trial)
                n_fitted = len({name for _, name in trial.fits})
                lines.show(len(trials), f"{n_fitted} of {count_noun(len(contenders), 'learner')}")
    except KeyboardInterrupt:
        if not trials:
            raise
        raise LeaderboardInterrupted(summarize()) from None
    return summarize()


def _run_trials(
    world: LeaderboardData,
    first: RandomTestData,
    learners: Mapping[str, Learner],
    protocols: Sequence[Protocol],
    metrics: Sequence[str],
    seeds: Sequence[int],
    n_threads: int | None,
) -> Iterator[tuple[bool, Trial]]:
    """Each trial after each of its learners, and whether it is complete."""
    for seed in seeds:
        data = first if seed == seeds[0] or not world.is_redrawn else world.draw(seed)
        setup = TrialSetup(data, protocols, seed, metrics, n_threads)
        for number, trial in enumerate(setup.run(learners), start=1):
            yield number == len(learners), trial


def _check_metrics(metrics: Sequence[str]) -> tuple[str, ...]:
    names = tuple(metric.name for metric in find_metrics(metrics, relevance_threshold=None))
    unknown = next((name for name in names if name not in LOSSES), None)
    if unknown is not None or "mse" not in names:
        raise UsageError(
            f"a leaderboard has the metrics {join_words(list(LOSSES))}, and always mse; got "
            f"{join_words(names)}.",
            parameter="metrics",
            value=unknown,
        )
    return names


def _choose_protocols(names: Sequence[str] | None, data: RandomTestData) -> list[Protocol]:
    require_list("protocols", names, of="names")
    if names is None:
        names = DEFAULT_PROTOCOLS if data.propensities is not None else ("sample", "leaky")
        if not data.is_logged().any():
            names = [name for name in names if name != "paper"]  # the same as clean
    names = list(names)
    for name in names:
        require_name("protocol", name, PROTOCOLS, parameter="protocols")
        if data.propensities is None and not PROTOCOLS[name].uses_sample:
            raise UsageError(
                f"the protocol {name!r} needs propensities of the log.",
                parameter="protocols",
                value=name,
                remedy="Pass `propensities`, or use the protocols 'sample' and 'leaky'.",
            )
    if not names:
        raise UsageError("`protocols` is empty.", parameter="protocols", value=names)
    return [PROTOCOLS[name] for name in dict.fromkeys(names)]


def _choose_learners(
    learners: Mapping[str, Learner] | Sequence[str] | None, data: RandomTestData
) -> Mapping[str, Learner]:
    if isinstance(learners, Mapping):
        for learner in learners.values():
            Instance(Learner, remedy="Pass Learner(model, grid).")("learners", learner)
        _require_some(len(learners))
        return learners
    require_list("learners", learners, of="names")
    declared = find_learners(propensity_matrix=data.propensity_matrix)
    if learners is None:
        return declared
    names = [learners] if isinstance(learners, str) else list(learners)
    _require_some(len(names))
    for name in names:
        require_name("learner", name, declared, parameter="learners")
    return {name: declared[name] for name in names}


def _require_some(n_learners: int) -> None:
    if not n_learners:
        raise UsageError(
            "`learners` is empty.",
            parameter="learners",
            remedy="Leave it out to compare all declared learners.",
        )


def summarize_trials(
    trials: Sequence[Trial],
    world: LeaderboardData,
    protocols: Sequence[Protocol],
    *,
    learners: Sequence[str],
    metrics: Sequence[str],
    level: float = 0.95,
    n_planned: int | None = None,
) -> Leaderboard:
    """Means, paired intervals and ties over the seeds of finished trials."""
    reasons = {key: text for trial in trials for key, text in trial.failures.items()}
    rows: list[Row] = []
    for protocol in protocols:
        complete = [
            name for name in learners if all((protocol.name, name) in each.fits for each in trials)
        ]
        for metric in metrics:
            rows += _protocol_rows(trials, world, protocol, complete, metric, level)
    rows.sort(key=lambda row: metrics.index(row["metric"]))
    failures = [
        {"protocol": protocol, "learner": learner, "reason": text}
        for (protocol, learner), text in reasons.items()
    ]
    return Leaderboard(
        rows,
        world.name,
        len(trials),
        level,
        "draw" if world.is_redrawn else "user",
        failures,
        world.description,
        world.published,
        warnings=_count_warnings(trials),
        n_planned=n_planned,
    )


def _count_warnings(trials: Sequence[Trial]) -> list[str]:
    """One sentence, the first, for all seeds with warnings about their propensities."""
    with_warnings = [trial for trial in trials if trial.warnings]
    if not with_warnings:
        return []
    first = with_warnings[0].warnings[0]
    return [
        f"naive-Bayes propensities of {len(with_warnings)} of {count_noun(len(trials), 'seed')} "
        f"have a warning; the first: {first}"
    ]


def _protocol_rows(
    trials: Sequence[Trial],
    world: LeaderboardData,
    protocol: Protocol,
    learners: Sequence[str],
    metric: str,
    level: float,
) -> list[Row]:
    """The rows of one protocol and metric, the least error first."""
    fits = {name: [trial.fits[protocol.name, name] for trial in trials] for name in learners}
    predictions = {
        name: [fit.prediction for fit in learner_fits] for name, learner_fits in fits.items()
    }
    predictions[BEST_CONSTANT] = [_best_constant(trial, protocol, metric) for trial in trials]
    errors = np.array(
        [_test_errors(trials, protocol, each, metric) for each in predictions.values()]
    )
    if world.is_redrawn:
        estimate = _estimate_over_draws(errors)
    else:
        estimate = _estimate_over_users(trials, protocol, list(predictions.values()), metric)
    verdicts = compare_with_best(estimate, n_ranked=len(learners), level=level)
    rows = []
    for number, name in enumerate(predictions):
        interval = estimate.of(number, level=level)
        rows.append(
            {
                "protocol": protocol.name,
                "metric": metric,
                "learner": name,
                "mean": interval.value,
                "ci_low": _finite(interval.low),
                "ci_high": _finite(interval.high),
                "std_over_repeats": _spread(errors[number]),
                **verdicts[number],
                **_describe_fits(fits.get(name, ()), metric),
            }
        )
    return sorted(rows, key=lambda row: (row["verdict"] == BASELINE, row["mean"]))


def _best_constant(trial: Trial, protocol: Protocol, metric: str) -> Vector:
    """The constant with the least error on the tested cells, for every cell."""
    rating = trial.test.rating[trial.tested[protocol.name]]
    value = np.median(rating) if metric == "mae" else rating.mean()
    return np.full(len(trial.test), float(value))


def _test_errors(
    trials: Sequence[Trial], protocol: Protocol, predictions: Sequence[Vector], metric: str
) -> Vector:
    """The error on the tested cells, for each trial."""
    errors = []
    for trial, prediction in zip(trials, predictions, strict=True):
        is_tested = trial.tested[protocol.name]
        loss = LOSSES[metric](trial.test.rating[is_tested] - prediction[is_tested])
        errors.append(float(loss.mean()))
    return np.array(errors)


def _estimate_over_draws(errors: Matrix) -> Estimate:
    """Means over draws of the log; draws are the sample. ``errors`` are learners x draws."""
    n_draws = errors.shape[1]
    if n_draws < 2:
        nothing = np.zeros((len(errors), len(errors)))
        return Estimate(errors[:, 0], nothing, no_interval="there is only one draw")
    covariance = np.atleast_2d(np.cov(errors)) / n_draws
    return Estimate(errors.mean(axis=1), covariance, degrees=n_draws - 1)


def _estimate_over_users(
    trials: Sequence[Trial],
    protocol: Protocol,
    predictions: Sequence[Sequence[Vector]],
    metric: str,
) -> Estimate:
    """Means over the test; users are the sample, each cell's loss is averaged over trials.

    A cell is averaged over those trials in which it counts.
    """
    test, criterion = trials[0].test, find_metric(metric)
    tested = np.stack([trial.tested[protocol.name] for trial in trials])
    rows: IntVector = np.flatnonzero(tested.any(axis=0)).astype(np.int64)
    share = tested[:, rows] / tested[:, rows].sum(axis=0)
    part = test.take(rows)
    return estimate_on_test(
        part,
        [_average_delta(part, criterion, of_learner, rows, share) for of_learner in predictions],
    )


def _average_delta(
    test: Ratings, criterion: Any, predictions: Sequence[Vector], rows: IntVector, share: Matrix
) -> Delta:
    deltas = [compute_test_delta(test, criterion, prediction[rows]) for prediction in predictions]
    value = sum(weight * delta.value for weight, delta in zip(share, deltas, strict=True))
    return replace(deltas[0], value=value)


def compare_with_best(estimate: Estimate, *, n_ranked: int, level: float) -> list[Row]:
    """How far each learner is behind the best of the first ``n_ranked``, and whether it is a tie.

    The same data choose the best learner, so Holm's adjustment is for all pairs of ranked ones.
    """
    ranked = range(n_ranked)
    best = int(np.argmin(estimate.value[:n_ranked]))
    pairs = list(combinations(ranked, 2))
    p_values = [_p_value(estimate.difference(*pair, level=level)) for pair in pairs]
    adjusted = dict(zip(pairs, adjust_p_values(p_values), strict=True))
    rows = []
    for number in range(estimate.value.size):
        behind = estimate.difference(number, best, level=level)
        p_holm = adjusted.get((min(number, best), max(number, best)))
        verdict = BEST if number == best else TIED if (p_holm or 0.0) >= 1 - level else WORSE
        rows.append(
            {
                "verdict": verdict if number in ranked else BASELINE,
                "behind": behind.value,
                "behind_low": _finite(behind.low),
                "behind_high": _finite(behind.high),
                "p_holm": p_holm,
            }
        )
    return rows


def _p_value(difference: Interval) -> float:
    return 1.0 if math.isnan(difference.p_value) else difference.p_value


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _spread(errors: Vector) -> float | None:
    return float(np.std(errors, ddof=1)) if errors.size > 1 else None


def _describe_fits(fits: Sequence[LearnerTrial], metric: str) -> Row:
    """What cross-validation chose and lost, averaged over trials; None where it did not choose."""
    texts = Counter(_format_settings(fit.settings) for fit in fits)
    text, count = texts.most_common(1)[0] if texts else ("", 0)
    return {
        "cv_score": _mean([fit.cv_score for fit in fits]),
        "regret": _mean([None if fit.regret is None else fit.regret[metric] for fit in fits]),
        "rank_correlation": _mean([fit.rank_correlation for fit in fits]),
        "at_edge": sum(bool(fit.at_edge) for fit in fits),
        "chosen": text if count == len(fits) else f"{text} ({count} of {len(fits)} seeds)",
        "seconds": _mean([fit.seconds for fit in fits]),
    }


def _format_settings(settings: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in settings.items())


def _mean(values: Sequence[float | None]) -> float | None:
    numbers = [value for value in values if value is not None]
    return float(np.mean(numbers)) if numbers else None
