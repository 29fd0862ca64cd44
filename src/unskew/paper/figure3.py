"""Figure 3: the error of factorization over all cells, with and without propensities."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import stats

from unskew.data.propensities import PropensitiesLike
from unskew.data.ratings import Ratings
from unskew.datasets.location import PathLike
from unskew.errors import ConvergenceWarning, PropensityWarning
from unskew.metrics.metric import MetricInput, find_metric
from unskew.model_selection.search import cross_validate
from unskew.models.matrix_factorization import MatrixFactorization
from unskew.models.recommender import Recommender
from unskew.paper import EXPERIMENTS
from unskew.paper.completion import (
    ALPHAS,
    MOVIELENS_ALPHA,
    GroundTruth,
    find_ground_truth,
    predict_all_cells,
)
from unskew.paper.draws import RatingMatrix, check_sample_sizes, sample_ratings
from unskew.paper.reproduction import Reproduction, Row, check_trials, format_difference
from unskew.progress import Track, no_progress
from unskew.propensity.naive_bayes import NaiveBayesPropensity
from unskew.settings import OneOf
from unskew.simulation.observation import Observation
from unskew.threads import Workers, single_blas_thread
from unskew.types import Vector

IPS, IPS_NB, NAIVE = "MF-IPS", "MF-IPS-NB", "MF-Naive"
L2 = (0.2, 0.5, 1, 2, 5, 10)
"""On MovieLens 2 is best in nearly all trials; from 25 on every factor is 0."""
N_FACTORS, N_FOLDS = 20, 4
TOL, MAX_ITER = 3e-5, 100
"""The error over all cells then differs by less than 1 % from a fit to 1e-6 in float64."""
SAMPLE_SIZES = (100, 1_000, 10_000, 100_000)
"""Our choice; the paper does not print the sizes it used."""
PAIRED, CHOSEN = "paired by trial", "cross-validated"
PANELS = {"left": ("left",), "right": ("right",), "both": ("left", "right")}


@dataclass(frozen=True, slots=True)
class FactorizationScore:
    """One factorization: its penalty, its cross-validation score, and its MSE over all cells."""

    l2: float
    score: float
    mse: float


@dataclass(frozen=True, slots=True)
class TrialInput:
    """One log to draw and fit; naive Bayes is fitted with random samples of the given sizes."""

    observation: Observation
    seed: tuple[int, ...]
    sample_sizes: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class TrialFits:
    """All factorizations of one log."""

    without_sample: Mapping[str, FactorizationScore]
    """MF-IPS with the true propensities, and MF-Naive."""
    by_sample_size: Mapping[int, FactorizationScore]
    """MF-IPS-NB."""

    def select(self, point: AxisPoint) -> Mapping[str, FactorizationScore]:
        """The models shown at a point of a panel, in the order of its curves."""
        if point.sample_size is None:
            return self.without_sample
        return {IPS_NB: self.by_sample_size[point.sample_size], **self.without_sample}


@dataclass(frozen=True, slots=True)
class AxisPoint:
    """A point on the horizontal axis: an alpha (left panel) or a sample size (right panel)."""

    panel: str
    alpha: float
    sample_size: int | None = None

    @property
    def keys(self) -> Row:
        """The entries by which a row names its point."""
        size = {} if self.sample_size is None else {"sample_size": self.sample_size}
        return {"panel": self.panel, "alpha": self.alpha, **size}

    @property
    def difference(self) -> str:
        """The two models whose difference is shown."""
        return f"{IPS if self.sample_size is None else IPS_NB} minus {NAIVE}"


@EXPERIMENTS.declare(
    "figure3",
    label="Figure 3",
    summary="Error of factorization over all cells, with and without propensities.",
    traits={
        "order": 4,
        "trials": 30,
        "data": "movielens-100k",
        "needs_data": False,
        "panels": tuple(PANELS),
    },
)
def reproduce_figure3(
    *,
    data: PathLike = None,
    panel: str = "left",
    trials: int = 30,
    random_state: int = 0,
    l2: Sequence[float] = L2,
    sample_sizes: Sequence[int] = SAMPLE_SIZES,
    track: Track = no_progress,
) -> Reproduction:
    """Compare the MSE of MF-IPS and MF-Naive over all cells, with 20 factors and free offsets.

    The ``"left"`` panel varies the strength of selection. The ``"right"`` panel, at alpha = 0.25,
    varies the number of random ratings from which naive Bayes estimates propensities; it adds
    MF-IPS-NB, with these propensities.

    Each trial draws a log of 5 % of all ratings, chooses ``l2`` for each model by four-fold
    cross-validation (IPS with the propensities of the folds; a plain average for MF-Naive), and
    fits the whole log. ``data`` is the folder of MovieLens 100K; see
    :func:`unskew.paper.completion.find_ground_truth`.
    """
    OneOf(tuple(PANELS))("panel", panel)
    check_trials(trials, "figure3", "intervals over trials")
    points = _axis_points(PANELS[panel], sample_sizes)
    ground_truth = find_ground_truth(data, random_state=random_state)
    fits = _run_trials(ground_truth, points, trials, random_state, l2, track)
    rows = [
        row
        for point in points
        for row in _make_rows(point, [trial.select(point) for trial in fits[point.alpha]])
    ]
    differences = "; ".join(dict.fromkeys(point.difference for point in points))
    caption = (
        f"Mean squared error over all {ground_truth.ratings.size:,} cells, mean over trials with "
        f"a 95 % t interval; that of the difference ({differences}) is paired by trial. "
        "l2: the range that cross-validation chose."
    )
    sentences = [
        *(SUMMARIES[name](rows) for name in PANELS[panel]),
        _count_grid_ends(fits, l2),
        ground_truth.origin,
    ]
    return Reproduction(
        "figure3",
        trials,
        random_state,
        rows,
        _make_table(rows, points),
        " ".join(sentences),
        caption,
        unit="trial",
    )


def _axis_points(panels: Sequence[str], sample_sizes: Sequence[int]) -> list[AxisPoint]:
    left = [AxisPoint("left", alpha) for alpha in ALPHAS]
    right = [AxisPoint("right", MOVIELENS_ALPHA, size) for size in check_sample_sizes(sample_sizes)]
    return [point for point in (*left, *right) if point.panel in panels]


def _run_trials(
    ground_truth: GroundTruth,
    points: Sequence[AxisPoint],
    trials: int,
    random_state: int,
    l2: Sequence[float],
    track: Track,
) -> dict[float, list[TrialFits]]:
    """The trials at every alpha. Both panels share the trials at alpha = 0.25.

    The numbers of a trial depend on the seed, its alpha and its index, not on the number of trials.
    """
    sizes: dict[float, list[int]] = {point.alpha: [] for point in points}
    for point in points:
        sizes[point.alpha] += [] if point.sample_size is None else [point.sample_size]
    observations = {alpha: ground_truth.observation(alpha) for alpha in sizes}
    inputs = [
        TrialInput(observations[alpha], (random_state, 3, ALPHAS.index(alpha), trial), sizes[alpha])
        for alpha in sizes
        for trial in range(trials)
    ]
    run = partial(_run_trial, ground_truth.ratings, l2)
    # One thread for each trial and none within it: these fits are too small to share threads.
    with warnings.catch_warnings(), single_blas_thread(), Workers() as workers:
        warnings.simplefilter("ignore", PropensityWarning)
        warnings.simplefilter("ignore", ConvergenceWarning)
        fits = list(track(workers.stream(run, inputs), label="Figure 3", total=len(inputs)))
    return {alpha: fits[index * trials : (index + 1) * trials] for index, alpha in enumerate(sizes)}


def _run_trial(truth: RatingMatrix, l2: Sequence[float], trial: TrialInput) -> TrialFits:
    rng = np.random.default_rng(trial.seed)
    log, propensities = trial.observation.draw(rng)
    seed = int(rng.integers(2**31))
    sample = sample_ratings(truth, max(trial.sample_sizes, default=0), rng)
    fit = partial(_fit, truth, log, l2, seed)
    naive_bayes = {
        size: NaiveBayesPropensity(smoothing=1.0).fit(log, mcar=sample[:size])
        for size in trial.sample_sizes
    }
    return TrialFits(
        {IPS: fit(propensities), NAIVE: fit(None)},
        {size: fit(model) for size, model in naive_bayes.items()},
    )


def _fit(
    truth: RatingMatrix,
    log: Ratings,
    l2: Sequence[float],
    random_state: int,
    propensities: PropensitiesLike | None,
) -> FactorizationScore:
    """Choose ``l2`` on the log, fit the log, and compare with the complete ratings."""
    model = MatrixFactorization(
        N_FACTORS,
        offsets="free",
        clip_predictions=False,
        tol=TOL,
        max_iter=MAX_ITER,
        dtype="float32",
        n_threads=1,
        random_state=random_state,
    )
    search = cross_validate(
        model,
        log,
        propensities=propensities,
        grid={"l2": l2},
        n_folds=N_FOLDS,
        extend_grid=False,
        n_threads=1,
        random_state=random_state,
    )
    mse = mse_of_all_cells(search.best_model, truth)
    return FactorizationScore(search.best_params["l2"], search.best_score, mse)


def mse_of_all_cells(model: Recommender, truth: npt.NDArray[Any]) -> float:
    """Eq. (1) with squared loss: 1 / (U I) * sum over all cells of (Y - F)^2."""
    prediction: npt.NDArray[Any] = predict_all_cells(model)
    cells = MetricInput(truth, np.empty(0, np.int32), truth, prediction=prediction)
    return float(find_metric("mse")(cells).value.mean(dtype=np.float64))


def t_interval(values: Vector) -> dict[str, float]:
    """The mean over trials, with its 95 % t interval."""
    mean = float(values.mean())
    half = float(stats.t.ppf(0.975, values.size - 1) * values.std(ddof=1) / np.sqrt(values.size))
    return {"ours": mean, "ci_low": mean - half, "ci_high": mean + half}


def _make_rows(point: AxisPoint, trials: Sequence[Mapping[str, FactorizationScore]]) -> list[Row]:
    """The curves come first. Rows that the paper does not draw have a ``variant``."""
    models = list(trials[0])
    mse = {model: np.array([trial[model].mse for trial in trials]) for model in models}
    difference = t_interval(mse[models[0]] - mse[NAIVE])
    rows = [_make_row(point, model, t_interval(mse[model])) for model in models]
    rows.append(_make_row(point, point.difference, difference, variant=PAIRED))
    for model in models:
        score = t_interval(np.array([trial[model].score for trial in trials]))
        chosen = [trial[model].l2 for trial in trials]
        rows.append(_make_row(point, model, score, variant=CHOSEN, l2=chosen))
    return rows


def _make_row(point: AxisPoint, model: str, values: Mapping[str, float], **more: Any) -> Row:
    return {**point.keys, "model": model, "metric": "mse", **values, "paper": None, **more}


def _make_table(rows: Sequence[Row], points: Sequence[AxisPoint]) -> dict[str, list[object]]:
    """One table row for each point. With three models there is no space for their intervals."""
    by_point = [[row for row in rows if point.keys.items() <= row.items()] for point in points]
    curves = [{row["model"]: row for row in group if "variant" not in row} for group in by_point]
    models = [model for model in (NAIVE, IPS, IPS_NB) if any(model in curve for curve in curves)]
    show = _format_mean_and_half_width if len(models) == 2 else _format_mean
    sizes: list[object] = [
        "" if point.sample_size is None else f"{point.sample_size:,}" for point in points
    ]
    differences = [row for group in by_point for row in group if row.get("variant") == PAIRED]
    chosen = [[value for row in group for value in row.get("l2", ())] for group in by_point]
    columns: dict[str, list[object]] = {"alpha": [f"{point.alpha:g}" for point in points]}
    if any(sizes):
        columns["sample"] = sizes
    for model in models:
        columns[model] = [show(curve[model]) if model in curve else "" for curve in curves]
    columns["difference"] = [_format_mean_and_half_width(row, "+.4f") for row in differences]
    columns["l2"] = [_format_range(values) for values in chosen]
    return columns


def _format_mean(row: Row) -> str:
    return f"{row['ours']:.3f}"


def _format_mean_and_half_width(row: Row, form: str = ".3f") -> str:
    half = (row["ci_high"] - row["ci_low"]) / 2
    return f"{row['ours']:{form}} ± {half:{form.removeprefix('+')}}"


def _format_range(values: Sequence[float]) -> str:
    low, high = min(values), max(values)
    return f"{low:g}" if low == high else f"{low:g} to {high:g}"


def _select_curve(
    rows: Sequence[Row], panel: str, model: str, variant: str | None = None
) -> list[Row]:
    """One curve, in the order of its axis."""
    key = (panel, model, variant)
    return [row for row in rows if (row["panel"], row["model"], row.get("variant")) == key]


def _summarize_left(rows: Sequence[Row]) -> str:
    differences = _select_curve(rows, "left", f"{IPS} minus {NAIVE}", PAIRED)
    curves = (_select_curve(rows, "left", IPS), _select_curve(rows, "left", NAIVE), differences)
    ips, naive, difference = (
        next(row for row in curve if row["alpha"] == MOVIELENS_ALPHA) for curve in curves
    )
    biased = [row for row in differences if row["alpha"] < 1]
    return (
        f"At alpha = 0.25, which mimics MovieLens, MF-IPS has {ips['ours']:.3f} and MF-Naive "
        f"{naive['ours']:.3f}; the difference, paired by trial, is "
        f"{format_difference(difference)}. "
        f"MF-IPS has the smaller mean at {sum(row['ours'] < 0 for row in biased)} of the "
        f"{len(biased)} values of alpha below 1, with an interval below 0 at "
        f"{sum(row['ci_high'] < 0 for row in biased)}. "
        "At alpha = 1 all weights are equal up to a constant."
    )


def _summarize_right(rows: Sequence[Row]) -> str:
    estimated = _select_curve(rows, "right", IPS_NB)
    differences = _select_curve(rows, "right", f"{IPS_NB} minus {NAIVE}", PAIRED)
    smallest = differences[0]
    ips, naive = (_select_curve(rows, "right", model)[0]["ours"] for model in (IPS, NAIVE))
    fewest, most = estimated[0], estimated[-1]
    return (
        f"At alpha = 0.25, MF-IPS-NB has {fewest['ours']:.3f} with propensities from "
        f"{fewest['sample_size']:,} random ratings and {most['ours']:.3f} from "
        f"{most['sample_size']:,}, where MF-IPS with known ones has {ips:.3f} and MF-Naive "
        f"{naive:.3f}. MF-IPS-NB minus MF-Naive, paired by trial, is "
        f"{format_difference(smallest)} with the smallest sample; the mean is "
        f"below 0 at {sum(row['ours'] < 0 for row in differences)} of the {len(differences)} "
        f"sizes, the interval at {sum(row['ci_high'] < 0 for row in differences)}. "
        "The paper does not say which sizes it took."
    )


SUMMARIES: Mapping[str, Callable[[Sequence[Row]], str]] = {
    "left": _summarize_left,
    "right": _summarize_right,
}


def _count_grid_ends(fits: Mapping[float, Sequence[TrialFits]], l2: Sequence[float]) -> str:
    chosen = [
        fit.l2
        for trials in fits.values()
        for trial in trials
        for fit in (*trial.without_sample.values(), *trial.by_sample_size.values())
    ]
    at_ends = sum(value in (min(l2), max(l2)) for value in chosen)
    return (
        f"{at_ends} of {len(chosen)} searches chose an end of the grid. "
        "The paper prints no numbers for this figure."
    )
