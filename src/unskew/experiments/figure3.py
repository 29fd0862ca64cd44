"""Figure 3: how well factorisation predicts the ratings of all cells, with and without propensities."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from scipy import stats

from unskew.data.datasets.location import PathLike
from unskew.data.observation import Observation
from unskew.data.propensities import Propensities
from unskew.data.ratings import Ratings
from unskew.errors import PropensityWarning, UnknownNameError, UsageError
from unskew.experiments.completion import all_predictions
from unskew.experiments.reproduction import Reproduction
from unskew.experiments.world import ALPHAS, World, find_world
from unskew.models.estimator import Recommender
from unskew.models.factorization import MatrixFactorization
from unskew.progress import Track, silent
from unskew.selection.search import cross_validate
from unskew.threads import Workers, single_blas_thread
from unskew.types import Vector

IPS, NAIVE = "MF-IPS", "MF-Naive"
DIFFERENCE = f"{IPS} minus {NAIVE}"
L2 = (0.2, 0.5, 1, 2, 5, 10)
"""2 is best almost everywhere on MovieLens, and from 25 on every factor is 0, so that larger values change nothing."""
N_FACTORS, N_FOLDS = 20, 4
TOL, MAX_ITER = 3e-5, 100
"""Enough: the error over all cells then differs from that of a run to 1e-6 in float64 by less than 1 %."""
PANELS = ("left",)

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Fit:
    """One factorisation of one log: its penalty, what cross-validation promised, and the error over all cells."""

    l2: float
    score: float
    mse: float


@dataclass(frozen=True, slots=True)
class Job:
    """One log to draw and fit."""

    observation: Observation
    seed: tuple[int, ...]


Trial = Mapping[str, Fit]
"""By model."""


def figure3(
    *,
    data: PathLike = None,
    panel: str = "left",
    trials: int = 30,
    seed: int = 0,
    l2: Sequence[float] = L2,
    track: Track = silent,
) -> Reproduction:
    """MSE over all cells of MF-IPS and MF-Naive, 20 factors and free offsets, against the strength of selection.

    Each trial draws a log of 5 % of the truth, chooses ``l2`` for each model by four folds of it (by IPS with the propensities of
    the folds for MF-IPS, by a plain average for MF-Naive) and fits all of it. ``data`` is the folder of MovieLens 100K; see
    :func:`unskew.experiments.world.find_world`.
    """
    if panel not in PANELS:
        raise UnknownNameError("panel", panel, PANELS)
    if trials < 2:
        raise UsageError(f"figure3 has intervals over trials, so at least 2 of them; got {trials}.")
    world = find_world(data, seed=seed)
    found = _left(world, trials, seed, l2, track)
    rows = [row for alpha, fits in found.items() for row in _rows(panel, alpha, fits)]
    caption = (
        f"Mean squared error over all {world.truth.size:,} cells, mean over trials with a 95 % t interval; the difference is "
        "paired by trial. l2: the range that cross-validation chose."
    )
    summary = f"{_summary(rows, l2)} {world.origin}"
    return Reproduction("figure3", trials, seed, rows, _table(rows), summary, caption, unit="trial")


def _left(world: World, trials: int, seed: int, l2: Sequence[float], track: Track) -> dict[float, list[Trial]]:
    """Trials at every alpha. The numbers of a trial depend on the seed, its alpha and its place, not on how many follow."""
    observations = [world.observation(alpha) for alpha in ALPHAS]
    jobs = [Job(each, (seed, 3, place, trial)) for place, each in enumerate(observations) for trial in range(trials)]
    done = _in_parallel(partial(_trial, world, l2), jobs, track)
    return {alpha: done[place * trials : (place + 1) * trials] for place, alpha in enumerate(ALPHAS)}


def _in_parallel(work: Callable[[Job], Trial], jobs: Sequence[Job], track: Track) -> list[Trial]:
    """A thread a trial, and none within it: fits of a few thousand rows are too small to share."""
    with warnings.catch_warnings(), single_blas_thread(), Workers() as workers:
        warnings.simplefilter("ignore", PropensityWarning)
        return list(track(workers.stream(work, jobs), label="Figure 3", total=len(jobs)))


def _trial(world: World, l2: Sequence[float], job: Job) -> Trial:
    rng = np.random.default_rng(job.seed)
    log, propensities = job.observation.draw(rng)
    seed = int(rng.integers(2**31))
    return {model: _fit(world, log, known, l2, seed) for model, known in ((IPS, propensities), (NAIVE, None))}


def _fit(world: World, log: Ratings, propensities: Propensities | None, l2: Sequence[float], seed: int) -> Fit:
    """Choose ``l2`` on the log, fit the log, and look at the truth."""
    model = MatrixFactorization(
        N_FACTORS, offsets="free", tol=TOL, max_iter=MAX_ITER, dtype="float32", n_threads=1, random_state=seed
    )
    found = cross_validate(model, log, propensities, grid={"l2": l2}, n_folds=N_FOLDS, n_threads=1, random_state=seed)
    return Fit(found.best_params["l2"], found.best_score, error_of_all_cells(found.best_model, world))


def error_of_all_cells(model: Recommender, world: World) -> float:
    """Eq. (1) with squared loss: (1 / UI) sum over all cells of (Y - F)^2."""
    return float(np.mean((all_predictions(model) - world.truth) ** 2, dtype=np.float64))


def t_interval(values: Vector) -> dict[str, float]:
    """Mean over trials with the 95 % t interval of it."""
    mean = float(values.mean())
    half = float(stats.t.ppf(0.975, values.size - 1) * values.std(ddof=1) / np.sqrt(values.size))
    return {"ours": mean, "ci_low": mean - half, "ci_high": mean + half}


def _rows(panel: str, alpha: float, trials: Sequence[Trial]) -> list[Row]:
    """The curves first; what the paper does not draw names its variant."""
    mse = {model: np.array([trial[model].mse for trial in trials]) for model in (IPS, NAIVE)}
    rows = [_row(panel, alpha, model, t_interval(mse[model])) for model in (IPS, NAIVE)]
    rows.append(_row(panel, alpha, DIFFERENCE, t_interval(mse[IPS] - mse[NAIVE]), variant="paired by trial"))
    for model in (IPS, NAIVE):
        own = [trial[model] for trial in trials]
        score = t_interval(np.array([fit.score for fit in own]))
        rows.append(_row(panel, alpha, model, score, variant="cross-validated", l2=[fit.l2 for fit in own]))
    return rows


def _row(panel: str, alpha: float, model: str, values: Mapping[str, float], **further: Any) -> Row:
    return {"panel": panel, "alpha": alpha, "model": model, "metric": "mse", **values, "paper": None, **further}


# For the eye


def _table(rows: Sequence[Row]) -> dict[str, list[object]]:
    by_key = _by_key(rows)
    return {
        "alpha": [f"{alpha:g}" for alpha in ALPHAS],
        NAIVE: [_plus_minus(by_key[alpha, NAIVE, None]) for alpha in ALPHAS],
        IPS: [_plus_minus(by_key[alpha, IPS, None]) for alpha in ALPHAS],
        "difference": [_plus_minus(by_key[alpha, DIFFERENCE, "paired by trial"], "+.4f") for alpha in ALPHAS],
        "l2 naive": [_range(by_key[alpha, NAIVE, "cross-validated"]["l2"]) for alpha in ALPHAS],
        "l2 IPS": [_range(by_key[alpha, IPS, "cross-validated"]["l2"]) for alpha in ALPHAS],
    }


def _by_key(rows: Sequence[Row]) -> dict[tuple[float, str, str | None], Row]:
    return {(row["alpha"], row["model"], row.get("variant")): row for row in rows}


def _plus_minus(row: Row, form: str = ".3f") -> str:
    return f"{row['ours']:{form}} ± {(row['ci_high'] - row['ci_low']) / 2:{form.removeprefix('+')}}"


def _range(values: Sequence[float]) -> str:
    low, high = min(values), max(values)
    return f"{low:g}" if low == high else f"{low:g} to {high:g}"


def _summary(rows: Sequence[Row], l2: Sequence[float]) -> str:
    by_key = _by_key(rows)
    ips, naive, difference = (
        by_key[0.25, model, variant] for model, variant in ((IPS, None), (NAIVE, None), (DIFFERENCE, "paired by trial"))
    )
    biased = [by_key[alpha, DIFFERENCE, "paired by trial"] for alpha in ALPHAS if alpha < 1]
    chosen = [value for row in rows for value in row.get("l2", ())]
    at_ends = sum(value in (min(l2), max(l2)) for value in chosen)
    return (
        f"At alpha = 0.25, which mimics MovieLens, MF-IPS has {ips['ours']:.3f} and MF-Naive {naive['ours']:.3f}; paired by "
        f"trial that is {difference['ours']:+.3f} [{difference['ci_low']:+.3f}, {difference['ci_high']:+.3f}]. MF-IPS has the "
        f"smaller mean at {sum(row['ours'] < 0 for row in biased)} of the {len(biased)} values of alpha below 1, with an "
        f"interval below 0 at {sum(row['ci_high'] < 0 for row in biased)}. At alpha = 1 all weights are alike up to a constant. "
        f"{at_ends} of {len(chosen)} searches chose an end of the grid. The paper prints no numbers for this figure."
    )
