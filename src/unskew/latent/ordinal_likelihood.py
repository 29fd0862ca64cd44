"""The penalised likelihood of an ordinal factorisation, as a solver brings it down."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from unskew.data.ratings import Ratings
from unskew.factorization import lbfgs
from unskew.kernels.ordinal_lines import Draws, Exponentials, Items, LevelLog
from unskew.latent.ordinal_parameters import ITEM_PARTS, USER_PARTS, OrdinalParameters
from unskew.threads import Workers
from unskew.types import IntVector, Vector

MOST_TASKS = 8
CELLS_A_TASK = 25_000
"""Users are worked through in pieces whose number depends on the cells alone; sums over them are added in their order."""
PLACES = 1 << 20
"""Where a comb of unlogged cells may begin: few enough that its sums are exact."""
MEMORY = 20
NOISE = ("user_noise", "item_noise")
"""Only differences count: less noise for all would be the same as larger factors, and those the prior is to keep small."""
CURVATURE = 0.25
"""Of log sigma, at most: what a rating adds to the second derivative by a log odds."""
OF_ROWS = frozenset(USER_PARTS + ITEM_PARTS)


def sorted_levels(log: Ratings, level: IntVector) -> LevelLog:
    """The log by user, and the items of each user rising."""
    order = np.lexsort((log.item, log.user))
    starts = np.zeros(log.n_users + 1, np.int64)
    np.cumsum(np.bincount(log.user, minlength=log.n_users), out=starts[1:])
    return LevelLog(starts, log.item[order], level[order])


def draw_unlogged(n_unlogged: npt.NDArray[np.int64], wanted: int, random_state: int) -> Draws:
    """About ``wanted`` unlogged cells, from each user in proportion to what there are; all, where there are no more."""
    share = min(1.0, wanted / max(1, int(n_unlogged.sum())))
    places = np.random.default_rng(random_state).integers(0, PLACES, n_unlogged.size) / PLACES
    return Draws(np.ceil(share * n_unlogged).astype(np.int64), places)


def even_ranges(work: npt.NDArray[np.int64]) -> tuple[tuple[int, int], ...]:
    """Ranges of users with about equal numbers of cells."""
    done = np.concatenate([[0], np.cumsum(work)])
    n_tasks = int(np.clip(done[-1] // CELLS_A_TASK, 1, MOST_TASKS))
    cuts = np.searchsorted(done, np.linspace(0, done[-1], n_tasks + 1)[1:-1])
    return tuple(pairwise(np.unique(np.concatenate([[0], cuts, [work.size]])).tolist()))


@dataclass(frozen=True, slots=True, eq=False)
class OrdinalLikelihood:
    """-log likelihood + sum over parts of precision times the penalty on part - centre; a solver by L-BFGS over the fitted parts.

    Noise has an inverse gamma prior, as in the paper, everything else a normal one.
    """

    log: LevelLog
    draws: Draws
    selects: bool
    """Whether cells that are not logged say something."""
    centre: OrdinalParameters
    """Where each part is drawn to; parts without a precision stay there."""
    precision: Mapping[str, float]
    """Of each fitted part; 0 is no prior."""
    workers: Workers
    tasks: tuple[tuple[int, int], ...]

    @classmethod
    def of(
        cls,
        log: Ratings,
        level: IntVector,
        *,
        centre: OrdinalParameters,
        precision: Mapping[str, float],
        n_unlogged: int,
        random_state: int,
        workers: Workers,
    ) -> OrdinalLikelihood:
        """Of a log whose ratings are ``level``, and of at most about ``n_unlogged`` other cells; 0 is of ratings alone."""
        cells = sorted_levels(log, level)
        n_logged = np.diff(cells.starts)
        draws = draw_unlogged(log.n_items - n_logged, n_unlogged, random_state)
        tasks = even_ranges(n_logged + draws.n_drawn)
        return cls(cells, draws, n_unlogged > 0, centre, precision, workers, tasks)

    @property
    def n_steps(self) -> int:
        """Each is one."""
        return 1

    def start(self, parameters: OrdinalParameters, /) -> lbfgs.State:
        """At the fitted parts of ``parameters``."""
        return lbfgs.start(self.evaluate, self._pack(parameters))

    def advance(self, state: lbfgs.State, /) -> lbfgs.State:
        """One L-BFGS iteration."""
        return lbfgs.advance(self.evaluate, state, memory=MEMORY)

    def value(self, state: lbfgs.State, /) -> float:
        """The objective."""
        return state.value

    def has_stalled(self, state: lbfgs.State, /) -> bool:
        """No step length gives a decrease any more."""
        return state.has_stalled

    def parameters(self, state: lbfgs.State, /) -> OrdinalParameters:
        """The vector, taken apart."""
        return self._unpack(state.point)

    def evaluate(self, point: Vector) -> tuple[float, Vector]:
        """The objective and its slopes: one pass over the cells. It is infinite where a search went much too far."""
        with np.errstate(over="ignore", invalid="ignore"):
            return self._evaluate(self._unpack(point))

    def _evaluate(self, at: OrdinalParameters) -> tuple[float, Vector]:
        value, slopes = self.likelihood(at)
        objective, parts = -value, []
        for name, precision in self.precision.items():
            away = np.ravel(getattr(at, name) - getattr(self.centre, name))
            penalty, by_part = (_of_noise if name in NOISE else _of_rest)(away)
            objective += precision * penalty
            slope = precision * by_part - np.ravel(getattr(slopes, name))
            parts.append(
                (slope - slope.mean() if name in NOISE else slope) / self._root_weight(name)
            )
        return objective, np.concatenate(parts)

    def likelihood(self, at: OrdinalParameters) -> tuple[float, OrdinalParameters]:
        """The log likelihood and its slopes."""
        from unskew.kernels.ordinal import add_likelihood

        users, items = at.users(), at.items()
        known, by_user = Exponentials.of(users, items), _like(users)

        def work(rows: tuple[int, int]) -> tuple[float, Items]:
            by_item = _like(items)
            return add_likelihood(
                rows, self.log, self.draws, users, items, known, self.selects, (by_user, by_item)
            ), by_item

        value, by_item = 0.0, _like(items)
        for piece, slopes in self.workers.stream(work, self.tasks):
            value += piece
            for total, part in zip(by_item, slopes, strict=True):
                total += part
        return value, at.slopes(by_user, by_item)

    def _pack(self, at: OrdinalParameters) -> Vector:
        return np.concatenate(
            [np.ravel(getattr(at, name)) * self._root_weight(name) for name in self.precision]
        )

    def _unpack(self, point: Vector) -> OrdinalParameters:
        parts: dict[str, Any] = {}
        first = 0
        for name in self.precision:
            like = np.asarray(getattr(self.centre, name))
            part = point[first : first + like.size].reshape(like.shape) / self._root_weight(name)
            parts[name] = part - part.mean() if name in NOISE else part
            first += like.size
        return replace(self.centre, **parts)

    def _root_weight(self, name: str) -> float:
        """Unknowns are scaled by the root of what bears on each, prior and ratings, so that steps suit all of them."""
        n_ratings, n_rows = (
            self.log.item.size,
            len(getattr(self.centre, name)) if name in OF_ROWS else 1,
        )
        return float(np.sqrt(self.precision[name] + CURVATURE * n_ratings / n_rows))


def _of_rest(away: Vector) -> tuple[float, Vector]:
    """Normal: t^2 / 2."""
    return 0.5 * float(away @ away), away


def _of_noise(away: Vector) -> tuple[float, Vector]:
    """Inverse gamma on exp(2 t), its mode at 1: (2 t + exp(-2 t) - 1) / 4. Like t^2 / 2 near 0, and a wall against no noise."""
    small = np.exp(-2 * away)
    return 0.25 * float((2 * away + small - 1).sum()), 0.5 * (1 - small)


def _like(lines: Any) -> Any:
    return type(lines)(*(np.zeros_like(part) for part in lines))
