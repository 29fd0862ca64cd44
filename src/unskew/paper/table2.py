"""Table 2: systems trained on self-selected ratings, evaluated on uniformly random cells."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from scipy import stats

from unskew.data.ratings import Ratings
from unskew.datasets.coat import load_coat
from unskew.datasets.location import PathLike
from unskew.datasets.yahoo_r3 import load_yahoo_r3
from unskew.errors import DatasetNotFoundError
from unskew.evaluation.evaluate import evaluate
from unskew.evaluation.result import Evaluation
from unskew.paper import EXPERIMENTS
from unskew.paper.reproduction import Reproduction, Row, format_difference
from unskew.paper.table2_systems import (
    CLEAN,
    CLEAN_REST,
    FULL,
    METRICS,
    REST,
    SYSTEMS,
    BiasedData,
    Grid,
    System,
    Table2Metric,
    TrainedSystem,
    prepare_coat,
    prepare_yahoo,
)
from unskew.progress import Track, no_progress
from unskew.tables import format_p_value

PAPER: Mapping[tuple[str, str, str], float] = {
    (data, system, metric): error
    for data, system, *errors in (
        ("coat", "MF-IPS", 1.093, 0.860),
        ("coat", "MF-Naive", 1.202, 0.920),
        ("coat", "HL MNAR", 1.214, 0.884),
        ("coat", "HL MAR", 1.220, 0.892),
        ("yahoo", "MF-IPS", 0.989, 0.810),
        ("yahoo", "MF-Naive", 1.891, 1.154),
        ("yahoo", "HL MNAR", 2.175, 1.177),
        ("yahoo", "HL MAR", 2.166, 1.179),
        ("yahoo", "CPT-v", 1.115, 0.770),
    )
    for metric, error in zip(METRICS, errors, strict=True)
}
"""Table 2 as printed, by data, system and metric. The numbers of CPT-v are quoted there."""
PAPER_GRID: Grid = {
    "l2": (0.008, 0.04, 0.2, 1, 5, 25, 125),
    "n_factors": (5, 10, 20, 40),
    "offsets": ("free", "regularized"),
}
"""The grid in the authors' code; the paper prints another one."""
TRAIN_MEAN = "train mean"
CONSTANTS = (TRAIN_MEAN, "best constant for mse", "best constant for mae")
CAPTION = (
    "Mean error on the uniformly random test, with a 95 % interval by resampling users, and on "
    "the test without the cells that are also in the training log (clean). Factorisations are "
    "trained for their metric, with the l2, rank (d) and offsets that cross-validation chose. "
    "*: on the 95 % of the test that the system had not been given. "
    "The best constant knows the test."
)
SHORT = {
    "n_factors": "d",
    "n_clusters": "K",
    "ridge_per_weight": "ridge",
    "offsets": "",
    "regularized": "reg.",
}
"""Names of settings and values for a narrow table."""
N_RESAMPLES = 1000


@dataclass(frozen=True, slots=True, eq=False)
class Table2Trial:
    """All systems, trained and evaluated with one seed."""

    random_state: int
    trained: Mapping[str, Mapping[Table2Metric, TrainedSystem]]
    """By system and metric."""
    errors: Mapping[str, tuple[Evaluation, Evaluation]]
    """By test: intervals clustered by user, and by resampling users."""


@dataclass(frozen=True, slots=True, eq=False)
class DataResults:
    """All systems and trials on one data set."""

    data: BiasedData
    systems: tuple[System, ...]
    trials: tuple[Table2Trial, ...]

    @property
    def tests(self) -> tuple[str, ...]:
        """The paper evaluates on all of Coat's test, and on 95 % of Yahoo!'s."""
        return (FULL, CLEAN, REST, CLEAN_REST) if self.data.name == "coat" else (REST, CLEAN_REST)

    def tests_for(self, system: System) -> tuple[str, ...]:
        """The tests on which a system may be evaluated, the main one first."""
        return (REST, CLEAN_REST) if system.uses_sample else self.tests

    def metrics_of(self, system: System) -> list[Table2Metric]:
        """The metrics that a system was trained for."""
        return list(self.trials[0].trained[system.title])

    def training_runs(self, system: System, metric: Table2Metric) -> list[TrainedSystem]:
        """The model of each trial."""
        return [trial.trained[system.title][metric] for trial in self.trials]

    def score(
        self, model: str, metric: str, test: str, *, trials: Sequence[Table2Trial] | None = None
    ) -> Row:
        """Error, standard error and interval, averaged over trials.

        ``std`` is the standard deviation over trials; None for one trial.
        """
        errors = [trial.errors[test] for trial in trials or self.trials]
        clustered, resampled = (
            [pair[index].risk(model, metric=metric, estimator="naive") for pair in errors]
            for index in (0, 1)
        )
        estimates = [risk.estimate for risk in clustered]
        return {
            "ours": float(np.mean(estimates)),
            "std_error": float(np.mean([risk.std_error for risk in clustered])),
            "ci_low": float(np.mean([risk.ci_low for risk in resampled])),
            "ci_high": float(np.mean([risk.ci_high for risk in resampled])),
            "std": float(np.std(estimates, ddof=1)) if len(estimates) > 1 else None,
        }

    def system_score(self, system: System, metric: str, test: int = 0) -> Row:
        """The score of the model trained for the metric, on a test of the system."""
        return self.score(_model_name(system.title, metric), metric, self.tests_for(system)[test])

    def constant_score(self, constant: str, metric: str, test: str) -> Row:
        """The score of a constant prediction, which is the same in all trials."""
        return self.score(constant, metric, test, trials=self.trials[:1])


def _model_name(title: str, metric: str) -> str:
    return f"{title}, for {metric}"


@EXPERIMENTS.declare(
    "table2",
    label="Table 2",
    summary="Systems trained on self-selected ratings, evaluated on uniformly random cells.",
    traits={"order": 6, "trials": 1, "data": "coat", "needs_data": True},
)
def reproduce_table2(
    *,
    data: PathLike = None,
    trials: int = 1,
    random_state: int = 0,
    grid: Grid = PAPER_GRID,
    systems: Mapping[str, Sequence[System]] = SYSTEMS,
    track: Track = no_progress,
) -> Reproduction:
    """MSE and MAE of every system on Coat and, if available, on Yahoo! R3.

    Yahoo! R3 is used if ``data`` or ``$UNSKEW_DATA`` has a licensed copy. Factorizations are
    chosen by four-fold IPS cross-validation of the metric that they are trained for. Systems that
    need random ratings get 5 % of the test and are evaluated on the rest. Trial t has the seed
    ``random_state + t``, which determines the folds, the initial factors and the 5 %; the data
    are the same in all trials.
    """
    data_sets = _load_data(data)
    seeds = range(random_state, random_state + trials)
    jobs = [
        (data_set, system, seed)
        for data_set in data_sets
        for system in systems[data_set.name]
        for seed in seeds
    ]
    trained = {
        (data_set.name, system.title, seed): system.train(data_set, seed, grid)
        for data_set, system, seed in track(jobs, label="Table 2", total=len(jobs))
    }
    results = []
    for data_set in data_sets:
        compared = tuple(systems[data_set.name])
        by_seed = {
            seed: {system.title: trained[data_set.name, system.title, seed] for system in compared}
            for seed in seeds
        }
        evaluated = tuple(
            _evaluate_trial(data_set, seed, by_system) for seed, by_system in by_seed.items()
        )
        results.append(DataResults(data_set, compared, evaluated))
    return Reproduction(
        "table2",
        trials,
        random_state,
        [row for result in results for row in make_rows(result)],
        make_table(results),
        summarize(results),
        CAPTION,
        unit="trial",
    )


def _load_data(data: PathLike) -> list[BiasedData]:
    data_sets = [prepare_coat(load_coat(data))]
    with suppress(DatasetNotFoundError):  # Yahoo! R3 needs a licence; the table does without
        data_sets.append(prepare_yahoo(load_yahoo_r3(data)))
    return data_sets


def _evaluate_trial(
    data: BiasedData, random_state: int, trained: Mapping[str, Mapping[Table2Metric, TrainedSystem]]
) -> Table2Trial:
    """Evaluate every model on every test, also on those where its score is not reported."""
    models = {
        _model_name(title, metric): system.model
        for title, by_metric in trained.items()
        for metric, system in by_metric.items()
    }
    errors = {
        name: _evaluate_test(models, data, data.test.take(cells), random_state)
        for name, cells in data.test_cells(random_state).items()
    }
    return Table2Trial(random_state, trained, errors)


def _evaluate_test(
    models: Mapping[str, Any], data: BiasedData, test: Ratings, random_state: int
) -> tuple[Evaluation, Evaluation]:
    """Plain averages over a uniformly drawn test: clustered by user, and resampling users."""
    users, items = test.users[test.user], test.items[test.item]
    constants = (data.train.rating.mean(), test.rating.mean(), np.median(test.rating))
    predictions = {name: model.predict(users, items) for name, model in models.items()} | {
        name: np.full(len(test), value) for name, value in zip(CONSTANTS, constants, strict=True)
    }
    evaluate_models = partial(
        evaluate, test, predictions, metrics=METRICS, estimators=["naive"], cluster="user"
    )
    return evaluate_models(), evaluate_models(bootstrap=N_RESAMPLES, random_state=random_state)


# Rows of the JSON


def make_rows(result: DataResults) -> list[Row]:
    """The numbers that the paper prints, then all others, each with a ``variant``."""
    return [
        *_printed_rows(result),
        *_score_rows(result),
        *_constant_rows(result),
        *_choice_rows(result),
        *_difference_rows(result),
    ]


def _printed_rows(result: DataResults) -> Iterator[Row]:
    systems = {system.title: system for system in result.systems}
    for (data, model, metric), paper in PAPER.items():
        if data == result.data.name and model in systems:
            ours = result.system_score(systems[model], metric)["ours"]
            yield {"data": data, "model": model, "metric": metric, "ours": ours, "paper": paper}


def _make_row(
    result: DataResults, model: str, metric: str, variant: str, values: Mapping[str, Any]
) -> Row:
    """A row that the paper does not print."""
    return {
        "data": result.data.name,
        "model": model,
        "metric": metric,
        "variant": variant,
        "paper": None,
        **values,
    }


def _join_variant(system: System, *parts: str) -> str:
    return ", ".join(filter(None, (system.variant, *parts)))


def _score_rows(result: DataResults) -> Iterator[Row]:
    for system in result.systems:
        for target in result.metrics_of(system):
            for test in result.tests_for(system):
                variant = _join_variant(system, f"trained for {target}", test)
                for metric in METRICS:
                    score = result.score(_model_name(system.title, target), metric, test)
                    yield _make_row(result, system.name, metric, variant, score)


def _constant_rows(result: DataResults) -> Iterator[Row]:
    for constant in CONSTANTS:
        for test in result.tests[:2]:
            for metric in METRICS:
                score = result.constant_score(constant, metric, test)
                yield _make_row(result, "constant", metric, f"{constant}, {test}", score)


def _choice_rows(result: DataResults) -> Iterator[Row]:
    """What cross-validation chose, and how long the training took."""
    for system in result.systems:
        for target in result.metrics_of(system):
            runs = result.training_runs(system, target)
            scores = [run.score for run in runs if run.score is not None]
            values = {
                "ours": float(np.mean(scores)) if scores else None,
                "chosen": [run.chosen for run in runs],
                "n_fits": runs[0].n_fits,
                "seconds": float(np.mean([run.seconds for run in runs])),
            }
            how = "cross-validated" if scores else "fitted"
            variant = _join_variant(system, f"trained for {target}", how)
            yield _make_row(result, system.name, target, variant, values)


def _difference_rows(result: DataResults) -> Iterator[Row]:
    """The first system minus each other one.

    Differences are paired by user in the first trial, and by a t-test over all trials.
    """
    first = result.systems[0]
    for other in result.systems[1:]:
        name = f"{first.title} minus {other.title}"
        shared_tests = [test for test in result.tests_for(other) if test in result.tests_for(first)]
        for metric in result.metrics_of(other):
            pair = _model_name(first.title, metric), _model_name(other.title, metric)
            for test in shared_tests:
                variant = f"trained for {metric}, {test}"
                by_user = _compare_by_user(result, metric, test, pair)
                yield _make_row(result, name, metric, f"{variant}, paired by user", by_user)
                if len(result.trials) > 1:
                    by_seed = _compare_by_seed(result, metric, test, pair)
                    yield _make_row(result, name, metric, f"{variant}, paired by seed", by_seed)


def _compare_by_user(result: DataResults, metric: str, test: str, pair: tuple[str, str]) -> Row:
    """The difference in the first trial; "ours", as in all rows, is our value."""
    trial = result.trials[0]
    comparison = trial.errors[test][0].compare(*pair, metric=metric, estimator="naive")
    return {
        "ours": comparison.difference,
        "seed": trial.random_state,
        "std_error": comparison.std_error,
        "ci_low": comparison.ci_low,
        "ci_high": comparison.ci_high,
        "p_value": comparison.p_value,
    }


def _compare_by_seed(result: DataResults, metric: str, test: str, pair: tuple[str, str]) -> Row:
    """A paired t-test over trials; without t and p-value if all differences are equal."""
    differences = [
        trial.errors[test][0].compare(*pair, metric=metric, estimator="naive").difference
        for trial in result.trials
    ]
    n = len(differences)
    mean, std = float(np.mean(differences)), float(np.std(differences, ddof=1))
    t = mean / std * n**0.5 if std > 0 else None
    p_value = None if t is None else float(2 * stats.t.sf(abs(t), n - 1))
    return {"ours": mean, "std": std, "t": t, "p_value": p_value}


# The table and the summary


def make_table(results: Sequence[DataResults]) -> dict[str, list[object]]:
    """One row for each system and metric: all for MSE, then all for MAE, then the constants."""
    rows = [row for result in results for metric in METRICS for row in _table_rows(result, metric)]
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    if len(results) == 1:
        del columns["data"]
    return columns


def _table_rows(result: DataResults, metric: Table2Metric) -> Iterator[dict[str, object]]:
    for system in result.systems:
        if metric in result.metrics_of(system):
            main, clean = (result.system_score(system, metric, test) for test in (0, 1))
            chosen = [run.chosen for run in result.training_runs(system, metric)]
            mark = "*" if result.tests_for(system)[0] != result.tests[0] else ""
            paper = PAPER.get((result.data.name, system.title, metric))
            yield _table_row(result, f"{system.label}{mark}", metric, main, clean, chosen, paper)
    names = {TRAIN_MEAN: TRAIN_MEAN, f"best constant for {metric}": "best constant"}
    for constant, name in names.items():
        main, clean = (result.constant_score(constant, metric, test) for test in result.tests[:2])
        yield _table_row(result, name, metric, main, clean, [{}], None)


def _table_row(
    result: DataResults,
    name: str,
    metric: str,
    main: Row,
    clean: Row,
    chosen: Sequence[Mapping[str, Any]],
    paper: float | None,
) -> dict[str, object]:
    return {
        "data": result.data.name,
        "model": name,
        "metric": metric,
        "ours": f"{main['ours']:.3f}",
        "95 %": f"{main['ci_low']:.3f}-{main['ci_high']:.3f}",
        "paper": "" if paper is None else f"{paper:.3f}",
        "clean": f"{clean['ours']:.3f}",
        "chosen": _format_choice(chosen),
    }


def _format_choice(chosen: Sequence[Mapping[str, Any]]) -> str:
    """The setting that all trials chose, or "*" if they differ."""
    parts = []
    for name in chosen[0]:
        values = {f"{setting[name]}" for setting in chosen}
        value = values.pop() if len(values) == 1 else "*"
        parts.append(f"{SHORT.get(name, name)} {SHORT.get(value, value)}".strip())
    return ", ".join(parts)


def summarize(results: Sequence[DataResults]) -> str:
    """The MSE results of each data set in words, and the time that all training took."""
    seconds = sum(
        trained.seconds
        for result in results
        for trial in result.trials
        for by_metric in trial.trained.values()
        for trained in by_metric.values()
    )
    total = f"Training all models, with the search of their settings, took {seconds:.0f} s."
    return " ".join([*(_summarize_data(result) for result in results), total])


def _summarize_data(result: DataResults) -> str:
    first, second = result.systems[:2]
    ours = {system.title: result.system_score(system, "mse")["ours"] for system in result.systems}
    pair = _model_name(first.title, "mse"), _model_name(second.title, "mse")
    test = result.tests_for(first)[0]
    by_user = _compare_by_user(result, "mse", test, pair)
    paper = [PAPER[result.data.name, system.title, "mse"] for system in (first, second)]
    best = min((title for title in ours if title != first.title), key=ours.__getitem__)
    by_seed = ""
    if len(result.trials) > 1:
        p_value = _compare_by_seed(result, "mse", test, pair)["p_value"]
        by_seed = f" A paired t-test over {len(result.trials)} seeds has {_format_p(p_value)}."
    return (
        f"On {result.data.name.capitalize()}, trained for MSE, {first.title} has "
        f"{ours[first.title]:.3f} where the paper has {paper[0]:.3f}, and {second.title} "
        f"{ours[second.title]:.3f} where it has {paper[1]:.3f}. In the first trial, the "
        f"difference, paired by user, is {format_difference(by_user)}, "
        f"{_format_p(by_user['p_value'])}.{by_seed} "
        f"Of all systems except {first.title}, {best} has the lowest MSE, {ours[best]:.3f}."
    )


def _format_p(p_value: float | None) -> str:
    return "no p-value" if p_value is None else format_p_value(p_value)
