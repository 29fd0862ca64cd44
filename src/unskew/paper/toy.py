"""The movie lovers of Figure 1: a log in which the worse prediction looks better."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from unskew.metrics.names import find_metric
from unskew.metrics.ranking import CumulativeGain
from unskew.paper.draws import ESTIMATORS, all_deltas, draw_estimates, plus_minus
from unskew.paper.reproduction import Reproduction
from unskew.progress import Track, no_progress
from unskew.simulation.observation import Observation

Grid = npt.NDArray[np.float32]
LIKED, NEUTRAL, DISLIKED = 5, 3, 1
CHANCE = {LIKED: 0.5, NEUTRAL: 0.25, DISLIKED: 0.05}


@dataclass(frozen=True, slots=True, eq=False)
class MovieLovers:
    """Horror lovers and romance lovers; horror, romance and drama. Everyone rates dramas 3."""

    truth: Grid
    propensities: Grid
    y1: Grid
    """Right but for fives, predicted as 4."""
    y2: Grid
    """Right but for ones, predicted as 5."""
    y3: Grid
    """Recommends every other horror and drama film to everyone: 1 where it does."""
    genre: npt.NDArray[np.str_]
    likes: npt.NDArray[np.str_]
    """The genre that each user loves."""
    observation: Observation

    @property
    def n_recommended(self) -> int:
        """Films that Y3 recommends to each user."""
        return int(self.y3[0].sum())


@dataclass(frozen=True, slots=True)
class ByLiking:
    """Propensity p for liked, p/2 for neutral and p/10 for disliked films."""

    def relative(self, rating: npt.NDArray[Any], users: slice, /) -> npt.NDArray[np.float64]:  # noqa: ARG002
        """By rating."""
        return np.select(
            [rating == LIKED, rating == NEUTRAL], [CHANCE[LIKED], CHANCE[NEUTRAL]], CHANCE[DISLIKED]
        )


def movie_lovers(n_lovers: int = 10, n_films: int = 10) -> MovieLovers:
    """``n_lovers`` of each kind, ``n_films`` of each genre."""
    likes = np.repeat(["horror", "romance"], n_lovers)
    genre = np.repeat(["horror", "romance", "drama"], n_films)
    truth = np.where(
        genre == "drama", NEUTRAL, np.where(genre == likes[:, None], LIKED, DISLIKED)
    ).astype(np.float32)
    model = ByLiking()
    chance = model.relative(truth, slice(None))
    return MovieLovers(
        truth,
        chance.astype(np.float32),
        y1=np.where(truth == LIKED, 4, truth).astype(np.float32),
        y2=np.where(truth == DISLIKED, LIKED, truth).astype(np.float32),
        y3=np.broadcast_to(
            (genre != "romance") & (np.arange(genre.size) % 2 == 0), truth.shape
        ).astype(np.float32),
        genre=genre,
        likes=likes,
        observation=Observation.of(truth, model, density=float(chance.mean())),
    )


def toy(*, trials: int = 50, seed: int = 0, track: Track = no_progress) -> Reproduction:
    """MAE of Y1 and Y2 and CG of Y3 by naive, IPS and SNIPS over ``trials`` draws of O."""
    world = movie_lovers()
    ratings = all_deltas(world.truth, {"Y1": world.y1, "Y2": world.y2}, [find_metric("mae")])
    gains = all_deltas(world.truth, {"Y3": world.y3}, [CumulativeGain(world.n_recommended)])
    draws = draw_estimates(
        np.vstack([ratings, gains]),
        world.observation,
        trials=trials,
        seed=seed,
        track=track,
        label="toy",
    )
    cells = (("Y1", "mae"), ("Y2", "mae"), ("Y3", f"cg@{world.n_recommended}"))
    rows: list[dict[str, Any]] = [
        {"prediction": prediction, "metric": metric, **draws.row(place), "paper": None}
        for place, (prediction, metric) in enumerate(cells)
    ]
    seen = _one_draw(world, seed)
    caption = "Mean ± standard deviation over draws."
    return Reproduction(
        "toy",
        trials,
        seed,
        rows,
        _table(rows),
        _summary(rows),
        caption,
        _setting(world, seen),
        _grids(world, seen),
    )


def _one_draw(world: MovieLovers, seed: int) -> Grid:
    log, _ = world.observation.draw(np.random.default_rng(seed))
    seen = np.zeros(world.truth.shape, dtype=np.float32)
    seen[log.user, log.item] = 1
    return seen


def _grids(world: MovieLovers, seen: Grid) -> dict[str, Grid]:
    return {
        "Y: true ratings": world.truth,
        "P: propensities": world.propensities,
        "O: observed (one draw)": seen,
        "Y1: prediction": world.y1,
        "Y2: prediction": world.y2,
        "Y3: recommended": world.y3,
    }


def _setting(world: MovieLovers, seen: Grid) -> dict[str, list[object]]:
    """One row for each kind of user and genre: all its cells are alike, but for what is observed or recommended."""
    blocks = [
        (likes, genre)
        for likes in dict.fromkeys(world.likes)
        for genre in dict.fromkeys(world.genre)
    ]
    cells = [np.ix_(world.likes == likes, world.genre == genre) for likes, genre in blocks]
    return {
        "users": [f"{likes} lovers" for likes, _ in blocks],
        "films": [str(genre) for _, genre in blocks],
        "Y": [int(world.truth[each].mean()) for each in cells],
        "P": [f"{world.propensities[each].mean():.2f}" for each in cells],
        "O": [f"{int(seen[each].sum())} of {seen[each].size} seen" for each in cells],
        "Y1": [int(world.y1[each].mean()) for each in cells],
        "Y2": [int(world.y2[each].mean()) for each in cells],
        "Y3": [f"{int(world.y3[each][0].sum())} recommended" for each in cells],
    }


def _table(rows: list[dict[str, Any]]) -> dict[str, list[object]]:
    columns: dict[str, list[object]] = {
        key: [row[key] for row in rows] for key in ("prediction", "metric", "true")
    }
    for name in ESTIMATORS:
        columns[name] = [plus_minus(row[name], 3) for row in rows]
    return columns


def _summary(rows: list[dict[str, Any]]) -> str:
    first, second, third = rows
    return (
        f"Y1 is the better prediction (true MAE {first['true']:.3f} against {second['true']:.3f}), but the naive average "
        f"over the log says the opposite ({first['naive']['mean']:.3f} against {second['naive']['mean']:.3f}), "
        "since films that people dislike are rarely in it. IPS and SNIPS put it right. "
        f"Users who follow Y3 enjoy {third['true']:.2f} stars a film; naive says {third['naive']['mean']:.2f}."
    )
