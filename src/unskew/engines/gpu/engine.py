"""The engine that ``fit(..., engine="gpu")`` asks for. torch is loaded when it runs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from unskew.data.factors import Factors
from unskew.factorization.engine import FitRequest, FitResult
from unskew.plugins import require_package
from unskew.ranking.positions import Positions
from unskew.types import IntVector, Scores


@dataclass(frozen=True, slots=True)
class GpuEngine:
    """Alternating least squares by torch, all rows of a side at once; and items ranked by one product a block of users.

    Parameters
    ----------
    device
        Such as ``"cuda:1"``; ``"cpu"`` runs the same code without a GPU. None takes the CUDA device there is.
    memory
        Bytes that the log may take there; a log that needs more stays outside and is copied block by block in every half-sweep.
        None takes most of what is free.
    """

    device: str | None = None
    memory: int | None = None

    def run(self, request: FitRequest, /) -> FitResult:
        """The same sweeps as the local engine, to the same optimum."""
        require_package("torch", extra="gpu", purpose="engine='gpu'")
        from unskew.engines.gpu.fitting import fit_on

        return fit_on(self.device, self.memory, request)

    def positions(self, factors: Factors, user: IntVector, item: IntVector, /) -> Positions:
        """Each logged cell's place among all items of its user."""
        require_package("torch", extra="gpu", purpose="engine='gpu'")
        from unskew.engines.gpu.ranking import positions_on

        return positions_on(self.device, factors, user, item)

    def best(
        self, factors: Factors, n_best: int, starts: npt.NDArray[np.int64], hidden: IntVector, /
    ) -> tuple[npt.NDArray[np.integer], Scores]:
        """The best items of every user and their scores, without the items ``hidden[starts[u]:starts[u + 1]]``."""
        require_package("torch", extra="gpu", purpose="engine='gpu'")
        from unskew.engines.gpu.ranking import best_on

        return best_on(self.device, factors, n_best, starts, hidden)
