"""The truth that logs are drawn from: MovieLens 100K completed where the data are at hand, else a simulation."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from unskew.datasets.location import PathLike, find
from unskew.datasets.movielens import MOVIELENS_100K, load_movielens_100k
from unskew.errors import DatasetNotFoundError
from unskew.paper.completion import complete
from unskew.simulation.observation import ByRating, Observation
from unskew.simulation.simulate import simulate

ALPHAS = (1.0, 0.5, 0.25, 0.125, 0.0625, 0.03125)
"""How strong selection is in Figures 2 and 3: not at all at 1, as in MovieLens at 0.25."""
DENSITY = 0.05


@dataclass(frozen=True, slots=True, eq=False)
class World:
    """A complete truth and what it is."""

    truth: npt.NDArray[np.float32]
    origin: str
    """A sentence for summaries."""

    def observation(self, alpha: float) -> Observation:
        """P = k for ratings 4 and 5 and k alpha^(4 - Y) below, with k such that 5 % of the cells are seen."""
        return Observation.of(self.truth, ByRating(alpha), density=DENSITY)


def find_world(data: PathLike = None, *, seed: int = 0) -> World:
    """MovieLens 100K below ``data``, or below ``$UNSKEW_DATA``, completed; without both a simulation of its size.

    Nothing is downloaded. A folder that is given and lacks the files is an error, a variable that leads nowhere is not.
    """
    try:
        log_file, *_ = find(MOVIELENS_100K, data)
    except DatasetNotFoundError:
        if data is not None:
            raise
        return simulated_world(seed)
    return completed_world(Path(str(log_file.parent)), seed)


def simulated_world(seed: int) -> World:
    """The default simulation."""
    return World(simulate(random_state=seed).truth, "Truth: simulated, as large as MovieLens 100K.")


@lru_cache(maxsize=1)
def completed_world(folder: Path, seed: int) -> World:
    """MovieLens 100K in ``folder``, completed; kept for the next experiment that asks."""
    made = complete(load_movielens_100k(folder).ratings, seed=seed)
    made.truth.flags.writeable = False
    origin = (
        f"Truth: MovieLens 100K, completed by {made.n_factors} factors with l2 = {made.l2:g} "
        f"(accuracy {made.accuracy:.3f} on held-out ratings), then given the marginals of random ratings."
    )
    return World(made.truth, origin)
