"""Figure 3: how well factorisation predicts the ratings of all cells, with and without propensities."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from scipy import stats

from unskew.data.checks import whole_number
from unskew.data.propensities import PropensitiesLike
from unskew.data.ratings import Ratings
from unskew.datasets.location import PathLike
from unskew.errors import PropensityWarning, UnknownNameError, UsageError
from unskew.model_selection.search import cross_validate
from unskew.models.matrix_factorization import MatrixFactorization
from unskew.models.recommender import Recommender
from unskew.paper.completion import all_predictions
from unskew.paper.draws import random_ratings
from unskew.paper.reproduction import Reproduction
from unskew.paper.world import ALPHAS, World, find_world
from unskew.progress import Track, no_progress
from unskew.propensity.naive_bayes import NaiveBayesPropensity
from unskew.simulation.observation import Observation
from unskew.threads import Workers, single_blas_thread
from unskew.types import Vector

IPS, IPS_NB, NAIVE = "MF-IPS", "MF-IPS-NB", "MF-Naive"
L2 = (0.2, 0.5, 1, 2, 5, 10)
"""2 is best almost everywhere on MovieLens, and from 25 on every factor is 0, so that larger values change nothing."""
N_FACTORS, N_FOLDS = 20, 4
TOL, MAX_ITER = 3e-5, 100
"""Enough: the error over all cells then differs from that of a run to 1e-6 in float64 by less than 1 %."""
SAMPLE_SIZES = (100, 1_000, 10_000, 100_000)
"""The paper does not say which it took."""
RIGHT_ALPHA = 0.25
PAIRED, CHOSEN = "paired by trial", "cross-validated"
PANELS = {"left": ("left",), "right": ("right",), "both": ("left", "right")}

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Fit:
    """One factorisation of one log: its penalty, what cross-validation promised, and the error over all cells."""

    l2: float
    score: float
    mse: float


@dataclass(frozen=True, slots=True)
class Job:
    """One log to draw and fit, and the sizes of the random sample to estimate its propensities from, too."""

    observation: Observation
    seed: tuple[int, ...]
    sample_sizes: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class Trial:
    """What was fitted to one log."""

    known: Mapping[str, Fit]
    """MF-IPS with the true propensities, and MF-Naive."""
    estimated: Mapping[int, Fit]
    """MF-IPS-NB by the size of its sample."""

    def at(self, point: Point) -> Mapping[str, Fit]:
        """The models of a point of either panel, in the order of its curves."""
        if point.sample_size is None:
            return self.known
        return {IPS_NB: self.estimated[point.sample_size], **self.known}


@dataclass(frozen=True, slots=True)
class Point:
    """A place on the axis of a panel: on the left an alpha, on the right a size of the sample."""

    panel: str
    alpha: float
    sample_size: int | None = None

    @property
    def keys(self) -> Row:
        """How a row says it."""
        size = {} if self.sample_size is None else {"sample_size": self.sample_size}
        return {"panel": self.panel, "alpha": self.alpha, **size}

    @property
    def difference(self) -> str:
        """Which models are compared: the one that the panel is about, and the naive one."""
        return f"{IPS if self.sample_size is None else IPS_NB} minus {NAIVE}"


def figure3(
    *,
    data: PathLike = None,
    panel: str = "left",
    trials: int = 30,
    seed: int = 0,
    l2: Sequence[float] = L2,
    sample_sizes: Sequence[int] = SAMPLE_SIZES,
    track: Track = no_progress,
) -> Reproduction:
    """MSE over all cells of MF-IPS and MF-Naive, 20 factors and free offsets.

    On the ``"left"`` against the strength of selection, on the ``"right"`` at alpha = 0.25 with MF-IPS-NB beside them, whose
    propensities are those of naive Bayes, against the number of random ratings that it has. Each trial draws a log of 5 % of
    the truth, chooses ``l2`` for each model by four folds of it (by IPS with the propensities of the folds, by a plain average
    for MF-Naive) and fits all of it. ``data`` is the folder of MovieLens 100K; see :func:`unskew.paper.world.find_world`.
    """
    if panel not in PANELS:
        raise UnknownNameError("panel", panel, tuple(PANELS))
    if trials < 2:
        raise UsageError(f"figure3 has intervals over trials, so at least 2 of them; got {trials}.")
    points = _points(PANELS[panel], sample_sizes)
    world = find_world(data, seed=seed)
    done = _run(world, points, trials, seed, l2, track)
    rows = [
        row
        for point in points
        for row in _rows(point, [trial.at(point) for trial in done[point.alpha]])
    ]
    caption = (
        f"Mean squared error over all {world.truth.size:,} cells, mean over trials with a 95 % t interval; that of the "
        f"difference ({_named_differences(points)}) is paired by trial. l2: the range that cross-validation chose."
    )
    summary = " ".join(
        [*(SUMMARIES[name](rows) for name in PANELS[panel]), _choices(done, l2), world.origin]
    )
    return Reproduction(
        "figure3", trials, seed, rows, _table(rows, points), summary, caption, unit="trial"
    )


def _points(panels: Sequence[str], sample_sizes: Sequence[int]) -> list[Point]:
    sizes = sorted({whole_number("sample_sizes", size, least=1) for size in sample_sizes})
    left = [Point("left", alpha) for alpha in ALPHAS]
    right = [Point("right", RIGHT_ALPHA, size) for size in sizes]
    return [point for point in (*left, *right) if point.panel in panels]


def _run(
    world: World, points: Sequence[Point], trials: int, seed: int, l2: Sequence[float], track: Track
) -> dict[float, list[Trial]]:
    """Trials at every alpha, those of the right panel among them: what both panels need is fitted once.

    The numbers of a trial depend on the seed, its alpha and its place, not on how many follow.
    """
    sizes: dict[float, list[int]] = {point.alpha: [] for point in points}
    for point in points:
        sizes[point.alpha] += [] if point.sample_size is None else [point.sample_size]
    observations = {alpha: world.observation(alpha) for alpha in sizes}
    jobs = [
        Job(observations[alpha], (seed, 3, ALPHAS.index(alpha), trial), sizes[alpha])
        for alpha in sizes
        for trial in range(trials)
    ]
    done = _in_parallel(partial(_trial, world, l2), jobs, track)
    return {alpha: done[place * trials : (place + 1) * trials] for place, alpha in enumerate(sizes)}


def _in_parallel(work: Callable[[Job], Trial], jobs: Sequence[Job], track: Track) -> list[Trial]:
    """A thread a trial, and none within it: fits of a few thousand rows are too small to share."""
    with warnings.catch_warnings(), single_blas_thread(), Workers() as workers:
        warnings.simplefilter("ignore", PropensityWarning)
        return list(track(workers.stream(work, jobs), label="Figure 3", total=len(jobs)))


def _trial(world: World, l2: Sequence[float], job: Job) -> Trial:
    rng = np.random.default_rng(job.seed)
    log, propensities = job.observation.draw(rng)
    seed = int(rng.integers(2**31))
    sample = random_ratings(world.truth, max(job.sample_sizes, default=0), rng)
    fit = partial(_fit, world, log, l2, seed)
    return Trial(
        {IPS: fit(propensities), NAIVE: fit(None)},
        {
            size: fit(NaiveBayesPropensity().fit(log, mcar=sample[:size]))
            for size in job.sample_sizes
        },
    )


def _fit(
    world: World,
    log: Ratings,
    l2: Sequence[float],
    seed: int,
    propensities: PropensitiesLike | None,
) -> Fit:
    """Choose ``l2`` on the log, fit the log, and look at the truth."""
    model = MatrixFactorization(
        N_FACTORS,
        offsets="free",
        tol=TOL,
        max_iter=MAX_ITER,
        dtype="float32",
        n_threads=1,
        random_state=seed,
    )
    found = cross_validate(
        model, log, propensities, grid={"l2": l2}, n_folds=N_FOLDS, n_threads=1, random_state=seed
    )
    return Fit(
        found.best_params["l2"], found.best_score, error_of_all_cells(found.best_model, world)
    )


def error_of_all_cells(model: Recommender, world: World) -> float:
    """Eq. (1) with squared loss: (1 / UI) sum over all cells of (Y - F)^2."""
    return float(np.mean((all_predictions(model) - world.truth) ** 2, dtype=np.float64))


def t_interval(values: Vector) -> dict[str, float]:
    """Mean over trials with the 95 % t interval of it."""
    mean = float(values.mean())
    half = float(stats.t.ppf(0.975, values.size - 1) * values.std(ddof=1) / np.sqrt(values.size))
    return {"ours": mean, "ci_low": mean - half, "ci_high": mean + half}


def _rows(point: Point, trials: Sequence[Mapping[str, Fit]]) -> list[Row]:
    """The curves first; what the paper does not draw names its variant."""
    models = list(trials[0])
    mse = {model: np.array([trial[model].mse for trial in trials]) for model in models}
    rows = [_row(point, model, t_interval(mse[model])) for model in models]
    rows.append(
        _row(point, point.difference, t_interval(mse[models[0]] - mse[NAIVE]), variant=PAIRED)
    )
    for model in models:
        own = [trial[model] for trial in trials]
        score = t_interval(np.array([fit.score for fit in own]))
        rows.append(_row(point, model, score, variant=CHOSEN, l2=[fit.l2 for fit in own]))
    return rows


def _row(point: Point, model: str, values: Mapping[str, float], **further: Any) -> Row:
    return {**point.keys, "model": model, "metric": "mse", **values, "paper": None, **further}


# For the eye


def _table(rows: Sequence[Row], points: Sequence[Point]) -> dict[str, list[object]]:
    """A line a point. Three models leave no room for their intervals, which are in the JSON and in the figure."""
    lines = [[row for row in rows if point.keys.items() <= row.items()] for point in points]
    curves = [{row["model"]: row for row in line if "variant" not in row} for line in lines]
    models = [model for model in (NAIVE, IPS, IPS_NB) if any(model in curve for curve in curves)]
    show = _plus_minus if len(models) == 2 else _mean
    sizes: list[object] = [
        "" if point.sample_size is None else f"{point.sample_size:,}" for point in points
    ]
    return {
        "alpha": [f"{point.alpha:g}" for point in points],
        **({"sample": sizes} if any(sizes) else {}),
        **{
            model: [show(curve[model]) if model in curve else "" for curve in curves]
            for model in models
        },
        "difference": [
            _plus_minus(row, "+.4f")
            for line in lines
            for row in line
            if row.get("variant") == PAIRED
        ],
        "l2": [_range([value for row in line for value in row.get("l2", ())]) for line in lines],
    }


def _mean(row: Row) -> str:
    return f"{row['ours']:.3f}"


def _plus_minus(row: Row, form: str = ".3f") -> str:
    return f"{row['ours']:{form}} ± {(row['ci_high'] - row['ci_low']) / 2:{form.removeprefix('+')}}"


def _range(values: Sequence[float]) -> str:
    low, high = min(values), max(values)
    return f"{low:g}" if low == high else f"{low:g} to {high:g}"


def _named_differences(points: Sequence[Point]) -> str:
    return "; ".join(dict.fromkeys(point.difference for point in points))


def _of_panel(rows: Sequence[Row], panel: str, model: str, variant: str | None = None) -> list[Row]:
    """One curve, in the order of its axis."""
    return [
        row
        for row in rows
        if (row["panel"], row["model"], row.get("variant")) == (panel, model, variant)
    ]


def _left_summary(rows: Sequence[Row]) -> str:
    curves = (
        _of_panel(rows, "left", *which)
        for which in ((IPS,), (NAIVE,), (f"{IPS} minus {NAIVE}", PAIRED))
    )
    ips, naive, difference = (
        next(row for row in curve if row["alpha"] == 0.25) for curve in curves
    )
    biased = [
        row for row in _of_panel(rows, "left", f"{IPS} minus {NAIVE}", PAIRED) if row["alpha"] < 1
    ]
    return (
        f"At alpha = 0.25, which mimics MovieLens, MF-IPS has {ips['ours']:.3f} and MF-Naive {naive['ours']:.3f}; paired by "
        f"trial that is {_interval(difference)}. MF-IPS has the smaller mean at {sum(row['ours'] < 0 for row in biased)} of the "
        f"{len(biased)} values of alpha below 1, with an interval below 0 at {sum(row['ci_high'] < 0 for row in biased)}. "
        "At alpha = 1 all weights are alike up to a constant."
    )


def _right_summary(rows: Sequence[Row]) -> str:
    estimated = _of_panel(rows, "right", IPS_NB)
    differences = _of_panel(rows, "right", f"{IPS_NB} minus {NAIVE}", PAIRED)
    known, naive = (_of_panel(rows, "right", model)[0]["ours"] for model in (IPS, NAIVE))
    fewest, most = estimated[0], estimated[-1]
    return (
        f"At alpha = 0.25, MF-IPS-NB has {fewest['ours']:.3f} with propensities from {fewest['sample_size']:,} random ratings "
        f"and {most['ours']:.3f} from {most['sample_size']:,}, where MF-IPS with known ones has {known:.3f} and MF-Naive "
        f"{naive:.3f}. MF-IPS-NB minus MF-Naive, paired by trial, is {_interval(differences[0])} with the smallest sample; the "
        f"mean is below 0 at {sum(row['ours'] < 0 for row in differences)} of the {len(differences)} sizes, the interval at "
        f"{sum(row['ci_high'] < 0 for row in differences)}. The paper does not say which sizes it took."
    )


SUMMARIES: Mapping[str, Callable[[Sequence[Row]], str]] = {
    "left": _left_summary,
    "right": _right_summary,
}


def _choices(done: Mapping[float, Sequence[Trial]], l2: Sequence[float]) -> str:
    trials = [trial for each in done.values() for trial in each]
    chosen = [
        fit.l2 for trial in trials for fit in (*trial.known.values(), *trial.estimated.values())
    ]
    at_ends = sum(value in (min(l2), max(l2)) for value in chosen)
    return f"{at_ends} of {len(chosen)} searches chose an end of the grid. The paper prints no numbers for this figure."


def _interval(row: Row) -> str:
    return f"{row['ours']:+.3f} [{row['ci_low']:+.3f}, {row['ci_high']:+.3f}]"
