"""The movie lovers of Figure 1: a log in which the worse prediction looks better."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from unskew.metrics.metric import find_metric
from unskew.paper import EXPERIMENTS
from unskew.paper.draws import (
    ESTIMATORS,
    RatingMatrix,
    all_deltas,
    draw_estimates,
    format_mean_and_std,
)
from unskew.paper.reproduction import Reproduction, Row
from unskew.progress import Track, no_progress
from unskew.simulation.observation import Observation

LIKED, NEUTRAL, DISLIKED = 5, 3, 1
PROPENSITY = {LIKED: 0.5, NEUTRAL: 0.25, DISLIKED: 0.05}


@dataclass(frozen=True, slots=True, eq=False)
class MovieLovers:
    """Horror lovers and romance lovers rate horror, romance and drama. All rate dramas 3."""

    truth: RatingMatrix
    propensities: RatingMatrix
    y1: RatingMatrix
    """Predicts 4 for the fives; all other predictions are right."""
    y2: RatingMatrix
    """Predicts 5 for the ones; all other predictions are right."""
    y3: RatingMatrix
    """Recommends every other horror and drama film to everyone: 1 for a recommended film."""
    genre: npt.NDArray[np.str_]
    likes: npt.NDArray[np.str_]
    """The genre that each user loves."""
    observation: Observation

    @property
    def n_recommended(self) -> int:
        """The number of films that Y3 recommends to each user."""
        return int(self.y3[0].sum())


@dataclass(frozen=True, slots=True)
class ByLiking:
    """Propensity p for liked, p/2 for neutral and p/10 for disliked films."""

    def relative_propensities(
        self, rating: npt.NDArray[Any], users: slice, /
    ) -> npt.NDArray[np.float64]:
        return np.select(
            [rating == LIKED, rating == NEUTRAL],
            [PROPENSITY[LIKED], PROPENSITY[NEUTRAL]],
            PROPENSITY[DISLIKED],
        )


def make_movie_lovers(n_lovers: int = 10, n_films: int = 10) -> MovieLovers:
    """``n_lovers`` of each kind of user, ``n_films`` of each genre."""
    likes = np.repeat(["horror", "romance"], n_lovers)
    genre = np.repeat(["horror", "romance", "drama"], n_films)
    liked_or_not = np.where(genre == likes[:, None], LIKED, DISLIKED)
    truth = np.where(genre == "drama", NEUTRAL, liked_or_not).astype(np.float32)
    is_recommended = (genre != "romance") & (np.arange(genre.size) % 2 == 0)
    model = ByLiking()
    propensities = model.relative_propensities(truth, slice(None))
    return MovieLovers(
        truth,
        propensities.astype(np.float32),
        y1=np.where(truth == LIKED, 4, truth).astype(np.float32),
        y2=np.where(truth == DISLIKED, LIKED, truth).astype(np.float32),
        y3=np.broadcast_to(is_recommended, truth.shape).astype(np.float32),
        genre=genre,
        likes=likes,
        observation=Observation.of(truth, model, density=float(propensities.mean())),
    )


@EXPERIMENTS.declare(
    "toy",
    label="Figure 1",
    summary="Movie lovers: a log in which the worse prediction looks better.",
    traits={"order": 1, "trials": 50, "data": None},
)
def reproduce_toy(
    *, trials: int = 50, random_state: int = 0, track: Track = no_progress
) -> Reproduction:
    """MAE of Y1 and Y2 and CG of Y3 by naive, IPS and SNIPS over ``trials`` draws of the log."""
    world = make_movie_lovers()
    mae, gain = find_metric("mae"), find_metric(f"cg@{world.n_recommended}")
    rating_deltas = all_deltas(world.truth, {"Y1": world.y1, "Y2": world.y2}, [mae])
    gain_deltas = all_deltas(world.truth, {"Y3": world.y3}, [gain])
    draws = draw_estimates(
        np.vstack([rating_deltas, gain_deltas]),
        world.observation,
        trials=trials,
        random_state=random_state,
        track=track,
        label="toy",
    )
    risks = (("Y1", mae.name), ("Y2", mae.name), ("Y3", gain.name))
    rows: list[Row] = [
        {"prediction": prediction, "metric": metric, **draws.summarize(risk), "paper": None}
        for risk, (prediction, metric) in enumerate(risks)
    ]
    is_observed = _draw_observed(world, random_state)
    return Reproduction(
        "toy",
        trials,
        random_state,
        rows,
        _make_table(rows),
        _summarize(rows),
        "Mean ± standard deviation over draws.",
        _describe_blocks(world, is_observed),
        {
            "Y: true ratings": world.truth,
            "P: propensities": world.propensities,
            "O: observed (one draw)": is_observed,
            "Y1: prediction": world.y1,
            "Y2: prediction": world.y2,
            "Y3: recommended": world.y3,
        },
    )


def _draw_observed(world: MovieLovers, random_state: int) -> RatingMatrix:
    """One draw of O: 1 for an observed cell."""
    log, _ = world.observation.draw(random_state)
    is_observed = np.zeros(world.truth.shape, dtype=np.float32)
    is_observed[log.user, log.item] = 1
    return is_observed


def _describe_blocks(world: MovieLovers, is_observed: RatingMatrix) -> dict[str, list[object]]:
    """One row for each kind of user and genre. Ratings and propensities are equal within it."""
    blocks = [
        (likes, genre)
        for likes in dict.fromkeys(world.likes)
        for genre in dict.fromkeys(world.genre)
    ]
    cells = [np.ix_(world.likes == likes, world.genre == genre) for likes, genre in blocks]
    observed = [is_observed[block] for block in cells]
    return {
        "users": [f"{likes} lovers" for likes, _ in blocks],
        "films": [str(genre) for _, genre in blocks],
        "Y": [int(world.truth[block].mean()) for block in cells],
        "P": [f"{world.propensities[block].mean():.2f}" for block in cells],
        "O": [f"{int(block.sum())} of {block.size} seen" for block in observed],
        "Y1": [int(world.y1[block].mean()) for block in cells],
        "Y2": [int(world.y2[block].mean()) for block in cells],
        "Y3": [f"{int(world.y3[block][0].sum())} recommended" for block in cells],
    }


def _make_table(rows: Sequence[Row]) -> dict[str, list[object]]:
    columns: dict[str, list[object]] = {
        key: [row[key] for row in rows] for key in ("prediction", "metric", "true")
    }
    for name in ESTIMATORS:
        columns[name] = [format_mean_and_std(row[name], 3) for row in rows]
    return columns


def _summarize(rows: Sequence[Row]) -> str:
    y1, y2, y3 = rows
    return (
        f"Y1 is the better prediction (true MAE {y1['true']:.3f} against {y2['true']:.3f}), "
        "but the naive average over the log says the opposite "
        f"({y1['naive']['mean']:.3f} against {y2['naive']['mean']:.3f}), "
        "since films that people dislike are rarely in it. IPS and SNIPS put it right. "
        f"Users who follow Y3 enjoy {y3['true']:.2f} stars a film; "
        f"naive says {y3['naive']['mean']:.2f}."
    )
