"""Table 2 on Coat: factorisation with and without propensities, judged on ratings of uniformly random cells."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from scipy import stats

from unskew.data.datasets.coat import Coat, load_coat
from unskew.data.datasets.location import PathLike
from unskew.data.propensities import PropensitiesLike
from unskew.data.ratings import Ratings
from unskew.evaluation.evaluate import evaluate
from unskew.evaluation.result import Evaluation
from unskew.experiments.reproduction import Reproduction
from unskew.models.factorization import MatrixFactorization
from unskew.progress import Track, silent
from unskew.propensity.logistic import LogisticPropensity
from unskew.propensity.naive_bayes import NaiveBayesPropensity
from unskew.selection.search import CrossValidation, Setting, cross_validate
from unskew.types import BoolVector

Grid = Mapping[str, Sequence[Any]]
Row = dict[str, Any]

PAPER = {("MF-IPS", "mse"): 1.093, ("MF-IPS", "mae"): 0.860, ("MF-Naive", "mse"): 1.202, ("MF-Naive", "mae"): 0.920}
"""Table 2 as printed, Coat columns. Each cell is that of the model trained for its own metric."""
PAPER_GRID: Grid = {
    "l2": (0.008, 0.04, 0.2, 1, 5, 25, 125),
    "n_factors": (5, 10, 20, 40),
    "offsets": ("free", "regularized"),
}
"""The authors' grid; their code has it, the paper prints another."""
LOSSES: Mapping[str, Literal["squared", "absolute"]] = {"mse": "squared", "mae": "absolute"}
METRICS = tuple(LOSSES)
FULL, CLEAN = "full test", "clean test"
REST, CLEAN_REST = "95 % of the test", "95 % of the test, clean"
"""The test without the random ratings that naive Bayes had."""
SAMPLE_SHARE = 0.05
IPS, NAIVE, NO_OFFSETS = "MF-IPS", "MF-Naive", "MF-Naive, no offsets"
MODELS = (IPS, NAIVE, NO_OFFSETS)
LOGISTIC, NAIVE_BAYES = "MF-IPS, logistic propensities", "MF-IPS, naive-Bayes propensities"
MODELS_FOR = {"mse": (*MODELS, LOGISTIC, NAIVE_BAYES), "mae": MODELS}
"""By the metric that they are trained for; with propensities estimated here for MSE alone."""
JUDGED_ON = {
    FULL: (*MODELS, LOGISTIC),
    CLEAN: (*MODELS, LOGISTIC),
    REST: (NAIVE_BAYES, LOGISTIC, IPS, NAIVE),
    CLEAN_REST: (NAIVE_BAYES, LOGISTIC, IPS, NAIVE),
}
TESTS_FOR = {"mse": tuple(JUDGED_ON), "mae": (FULL, CLEAN)}
DIFFERENCES = {
    FULL: ((IPS, NAIVE), (LOGISTIC, IPS)),
    CLEAN: ((IPS, NAIVE), (LOGISTIC, IPS)),
    REST: ((NAIVE_BAYES, IPS), (NAIVE_BAYES, NAIVE)),
    CLEAN_REST: ((NAIVE_BAYES, IPS), (NAIVE_BAYES, NAIVE)),
}
"""Which minus which, on what."""
TRAIN_MEAN, TEST_MEAN, TEST_MEDIAN = "train mean", "best constant for mse", "best constant for mae"
FLOORS = (TRAIN_MEAN, TEST_MEAN, TEST_MEDIAN)


@dataclass(frozen=True, slots=True, eq=False)
class Search:
    """One model's settings chosen on the log alone, and the time that took, the last fit included."""

    found: CrossValidation
    seconds: float

    @property
    def chosen(self) -> Setting:
        """The best settings."""
        return self.found.best_params


@dataclass(frozen=True, slots=True, eq=False)
class Trial:
    """All models trained for one metric from one seed."""

    seed: int
    searches: Mapping[str, Search]
    judged: Mapping[str, Evaluation]
    """By which cells of the test; every model and floor, by both metrics, naively, clustered by user."""


def table2(
    *, data: PathLike = None, trials: int = 1, seed: int = 0, grid: Grid = PAPER_GRID, track: Track = silent
) -> Reproduction:
    """MSE and MAE of MF-IPS and MF-Naive on Coat, each chosen by four-fold IPS cross-validation of its own metric.

    MF-IPS has the propensities that the authors published; trained for MSE also those of a logistic regression on the covariates,
    and of naive Bayes with 5 % of the random test, which then leaves the test of every model that is compared with it.
    ``data`` is the folder of the data sets, as :func:`unskew.data.datasets.coat.load_coat` takes it. The trials differ in their
    seeds (``seed``, ``seed + 1``, ...), which decide the folds, where the fits start and the 5 %; the data are the same.
    """
    coat = load_coat(data)
    seeds = range(seed, seed + trials)
    searches = _searches(coat, seeds, grid, track)
    trained = {
        target: [_trial(coat, target, each, {model: searches[each, target, model] for model in models}) for each in seeds]
        for target, models in MODELS_FOR.items()
    }
    rows = [*_printed(trained), *_scores(trained), *_floors(trained), *_choices(trained), *_differences(trained)]
    caption = (
        "Mean error on the uniformly random test with its user-clustered standard error, and on the test without the "
        f"{int(coat.overlap.sum())} cells that are in the training log too (clean). Each model is the one trained for the "
        "metric, with the l2, factors (d) and offsets that cross-validation chose. The best constant is chosen on the test. "
        "Logistic, NB: propensities estimated here, by logistic regression or naive Bayes; 95 %: on the test without the random "
        "ratings that naive Bayes had."
    )
    return Reproduction("table2", trials, seed, rows, _table(rows), _summary(rows, trials), caption, unit="trial")


def _searches(coat: Coat, seeds: Sequence[int], grid: Grid, track: Track) -> dict[tuple[int, str, str], Search]:
    jobs = [(seed, target, model) for seed in seeds for target, models in MODELS_FOR.items() for model in models]
    return {
        (seed, target, model): _search(coat, model, target, grid, seed)
        for seed, target, model in track(jobs, label="Table 2", total=len(jobs))
    }


def _search(coat: Coat, model: str, target: str, grid: Grid, seed: int) -> Search:
    """Estimating the propensities is part of the time."""
    began = time.perf_counter()
    found = cross_validate(
        MatrixFactorization(loss=LOSSES[target], tol=1e-5, random_state=seed),
        coat.train,
        PROPENSITIES[model](coat, seed) if model in PROPENSITIES else None,
        grid={**grid, "offsets": ("none",)} if model == NO_OFFSETS else grid,
        n_folds=4,
        metric=target,
        estimator="ips",
        random_state=seed,
    )
    return Search(found, time.perf_counter() - began)


def _published(coat: Coat, seed: int) -> PropensitiesLike:  # noqa: ARG001
    return coat.propensities


def _logistic(coat: Coat, seed: int) -> PropensitiesLike:
    """Eq. (17) on all pairs of covariates. Everybody rated 24 coats, so that users need no offset."""
    return LogisticPropensity(coat.user_features, coat.item_features, item_offsets=True, random_state=seed).fit(coat.train)


def _naive_bayes(coat: Coat, seed: int) -> PropensitiesLike:
    """Eq. (18) with the marginals of a part of the test."""
    return NaiveBayesPropensity().fit(coat.train, mcar=coat.test.take(sampled(coat, seed)))


PROPENSITIES: Mapping[str, Callable[[Coat, int], PropensitiesLike]] = {
    IPS: _published,
    LOGISTIC: _logistic,
    NAIVE_BAYES: _naive_bayes,
}


def sampled(coat: Coat, seed: int) -> BoolVector:
    """Which 5 % of the test naive Bayes has: nobody may be judged on them then."""
    size = round(SAMPLE_SHARE * len(coat.test))
    chosen = np.zeros(len(coat.test), dtype=np.bool_)
    chosen[np.random.default_rng((seed, 2)).choice(chosen.size, size, replace=False)] = True
    return chosen


def _trial(coat: Coat, target: str, seed: int, searches: Mapping[str, Search]) -> Trial:
    rest = ~sampled(coat, seed)
    tests = {FULL: np.ones_like(rest), CLEAN: ~coat.overlap, REST: rest, CLEAN_REST: rest & ~coat.overlap}
    judged = {
        cells: _judge(
            {model: searches[model] for model in JUDGED_ON[cells] if model in searches}, coat, coat.test.take(tests[cells])
        )
        for cells in TESTS_FOR[target]
    }
    return Trial(seed, searches, judged)


def _judge(searches: Mapping[str, Search], coat: Coat, test: Ratings) -> Evaluation:
    """Plain averages over a test that was drawn uniformly. The best constants are those of this very test."""
    constants = (coat.train.rating.mean(), test.rating.mean(), np.median(test.rating))
    floors = {name: np.full(len(test), value) for name, value in zip(FLOORS, constants, strict=True)}
    models = {model: search.found.best_model for model, search in searches.items()}
    return evaluate(test, models | floors, metrics=METRICS, estimators=["naive"], cluster="user")


Trained = Mapping[str, Sequence[Trial]]
"""By the metric that the models were trained for: a trial a seed."""


def _row(model: str, metric: str, ours: float, *, variant: str, **further: Any) -> Row:
    """A row that the paper does not print; "MF-Naive, no offsets" is a variant of MF-Naive."""
    name, _, kind = model.partition(", ")
    named = ", ".join(filter(None, (kind, variant)))
    return {"data": "coat", "model": name, "metric": metric, "variant": named, "ours": ours, "paper": None, **further}


def _printed(trained: Trained) -> list[Row]:
    return [
        {"data": "coat", "model": model, "metric": metric, "ours": _score(trained[metric], model, metric, FULL)["ours"]}
        | {"paper": paper}
        for (model, metric), paper in PAPER.items()
    ]


def _scores(trained: Trained) -> list[Row]:
    return [
        _row(model, metric, variant=f"trained for {target}, {cells}", **_score(trials, model, metric, cells))
        for target, trials in trained.items()
        for model in MODELS_FOR[target]
        for cells in TESTS_FOR[target]
        if model in JUDGED_ON[cells]
        for metric in METRICS
    ]


def _floors(trained: Trained) -> list[Row]:
    """Constants do not depend on the seed or on what the models were trained for."""
    return [
        _row("constant", metric, variant=f"{floor}, {cells}", **_score(trained["mse"][:1], floor, metric, cells))
        for floor in FLOORS
        for cells in (FULL, CLEAN)
        for metric in METRICS
    ]


def _score(trials: Sequence[Trial], model: str, metric: str, cells: str) -> Row:
    """Mean over seeds of the error and of its standard error, and the standard deviation over seeds (None for one)."""
    risks = [trial.judged[cells].risk(model, metric=metric, estimator="naive") for trial in trials]
    errors = [risk.estimate for risk in risks]
    spread = float(np.std(errors, ddof=1)) if len(errors) > 1 else None
    return {"ours": float(np.mean(errors)), "std_error": float(np.mean([risk.std_error for risk in risks])), "std": spread}


def _choices(trained: Trained) -> list[Row]:
    rows = []
    for target, trials in trained.items():
        for model in MODELS_FOR[target]:
            own = [trial.searches[model] for trial in trials]
            score = float(np.mean([search.found.best_score for search in own]))
            n_fits = 4 * len(own[0].found.table) + 1
            seconds = float(np.mean([search.seconds for search in own]))
            chosen = [search.chosen for search in own]
            variant = f"trained for {target}, cross-validated"
            rows.append(_row(model, target, score, variant=variant, chosen=chosen, n_fits=n_fits, seconds=seconds))
    return rows


def _differences(trained: Trained) -> list[Row]:
    """Paired by user in the first trial, and by a paired t-test over the seeds of all."""
    cases = [
        (trials, target, cells, pair)
        for target, trials in trained.items()
        for cells in TESTS_FOR[target]
        for pair in DIFFERENCES[cells]
        if set(pair) <= set(MODELS_FOR[target])
    ]
    rows = [_by_user(trials[0], target, cells, pair) for trials, target, cells, pair in cases]
    return rows + [_by_seed(trials, target, cells, pair) for trials, target, cells, pair in cases if len(trials) > 1]


def _minus(first: str, second: str) -> str:
    """The name of a difference; what kind the first model is comes last."""
    name, _, kind = first.partition(", ")
    return ", ".join(filter(None, (f"{name} minus {second}", kind)))


def _by_user(trial: Trial, target: str, cells: str, pair: tuple[str, str]) -> Row:
    found = trial.judged[cells].compare(*pair, metric=target, estimator="naive")
    interval = {name: getattr(found, name) for name in ("std_error", "ci_low", "ci_high", "p_value")}
    variant = f"trained for {target}, {cells}, paired by user"
    return _row(_minus(*pair), target, found.difference, variant=variant, seed=trial.seed, **interval)


def _by_seed(trials: Sequence[Trial], target: str, cells: str, pair: tuple[str, str]) -> Row:
    judged = [trial.judged[cells] for trial in trials]
    difference = [each.compare(*pair, metric=target, estimator="naive").difference for each in judged]
    mean, std = float(np.mean(difference)), float(np.std(difference, ddof=1))
    t = mean / std * len(trials) ** 0.5 if std > 0 else None
    p_value = None if t is None else float(2 * stats.t.sf(abs(t), len(trials) - 1))
    variant = f"trained for {target}, {cells}, paired by seed"
    return _row(_minus(*pair), target, mean, variant=variant, std=std, t=t, p_value=p_value)


# For the eye


class _Look:
    """Rows by model, metric and variant."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self._rows = {(row["model"], row["metric"], row.get("variant")): row for row in rows}

    def __call__(self, model: str, metric: str, variant: str) -> Row:
        name, _, kind = model.partition(", ")
        return self._rows[name, metric, ", ".join(filter(None, (kind, variant)))]


@dataclass(frozen=True, slots=True)
class _Line:
    """One line of the table: what is shown, on which cells, under which name."""

    model: str
    metric: str
    name: str
    variant: str
    tests: tuple[str, str] = (FULL, CLEAN)


def _lines() -> list[_Line]:
    """Models first, then those with propensities estimated here, then the floors; each trained for its own metric."""
    lines = [_Line(model, metric, model, f"trained for {metric}, ") for metric in METRICS for model in MODELS]
    lines.append(_Line(LOGISTIC, "mse", f"{IPS}, logistic", "trained for mse, "))
    for model, name in ((NAIVE_BAYES, f"{IPS}, NB, 95 %"), (IPS, f"{IPS}, 95 %"), (NAIVE, f"{NAIVE}, 95 %")):
        lines.append(_Line(model, "mse", name, "trained for mse, ", (REST, CLEAN_REST)))
    for metric in METRICS:
        lines.append(_Line("constant", metric, TRAIN_MEAN, f"{TRAIN_MEAN}, "))
        lines.append(_Line("constant", metric, "best constant", f"best constant for {metric}, "))
    return lines


def _table(rows: Sequence[Row]) -> dict[str, list[object]]:
    look, lines = _Look(rows), _lines()
    full, clean = ([look(line.model, line.metric, line.variant + line.tests[place]) for line in lines] for place in (0, 1))
    chosen = [
        {} if line.model == "constant" else _agreed(look(line.model, line.metric, f"{line.variant}cross-validated")["chosen"])
        for line in lines
    ]
    return {
        "model": [line.name for line in lines],
        "metric": [line.metric for line in lines],
        "ours": [f"{row['ours']:.3f} ± {row['std_error']:.3f}" for row in full],
        "paper": [f"{PAPER[line.name, line.metric]:.3f}" if (line.name, line.metric) in PAPER else "" for line in lines],
        "clean": [f"{row['ours']:.3f}" for row in clean],
        "l2": [setting.get("l2", "") for setting in chosen],
        "d": [setting.get("n_factors", "") for setting in chosen],
        "offsets": [setting.get("offsets", "") for setting in chosen],
    }


def _agreed(chosen: Sequence[Setting]) -> dict[str, str]:
    """What every trial chose, or "*" where they did not agree."""
    values = {name: {f"{setting[name]}" for setting in chosen} for name in chosen[0]}
    return {name: each.pop() if len(each) == 1 else "*" for name, each in values.items()}


def _summary(rows: Sequence[Row], trials: int) -> str:
    look = _Look(rows)
    ips, naive, bare = (look(model, "mse", f"trained for mse, {FULL}")["ours"] for model in MODELS)
    clean_ips, clean_bare = (look(model, "mse", f"trained for mse, {CLEAN}")["ours"] for model in (IPS, NO_OFFSETS))
    found = look(f"{IPS} minus {NAIVE}", "mse", f"trained for mse, {FULL}, paired by user")
    seconds = [row["seconds"] * trials for row in rows if "seconds" in row]
    by_seed = ""
    if trials > 1:
        p_value = look(f"{IPS} minus {NAIVE}", "mse", f"trained for mse, {FULL}, paired by seed")["p_value"]
        by_seed = f" A paired t-test over {trials} seeds has {_show(p_value)}."
    return (
        f"Trained for MSE, MF-IPS has {ips:.3f} where the paper has {PAPER[IPS, 'mse']:.3f}, and MF-Naive {naive:.3f} where it "
        f"has {PAPER[NAIVE, 'mse']:.3f}. Paired by user the difference is {found['ours']:+.3f} "
        f"[{found['ci_low']:+.3f}, {found['ci_high']:+.3f}], {_show(found['p_value'])}.{by_seed} "
        f"A naive model without offsets, which shrinks towards 0, has {bare:.3f}; on the clean test {clean_bare:.3f}, "
        f"where MF-IPS has {clean_ips:.3f}. {_with_estimated(look)} "
        f"The {len(seconds) * trials} searches took {sum(seconds):.0f} s."
    )


def _with_estimated(look: _Look) -> str:
    logistic = look(LOGISTIC, "mse", f"trained for mse, {FULL}")["ours"]
    apart = look(_minus(LOGISTIC, IPS), "mse", f"trained for mse, {FULL}, paired by user")
    bayes, ips, naive = (look(model, "mse", f"trained for mse, {REST}")["ours"] for model in (NAIVE_BAYES, IPS, NAIVE))
    return (
        f"With logistic propensities estimated here MF-IPS has {logistic:.3f}, {apart['ours']:+.3f} "
        f"[{apart['ci_low']:+.3f}, {apart['ci_high']:+.3f}] from that with the published ones. With naive Bayes, which had 5 % "
        f"of the test, it has {bayes:.3f} on the rest, where the published ones have {ips:.3f} and MF-Naive {naive:.3f}."
    )


def _show(p_value: float | None) -> str:
    return "no p-value" if p_value is None else f"p = {p_value:.2g}"
