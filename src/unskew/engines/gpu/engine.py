"""The engine of ``engine="gpu"``. It imports torch when it is used."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from unskew.data.factors import Factors
from unskew.factorization.engine import FitRequest, FitResult, PseudoOutcomeRequest
from unskew.factorization.solution import Solution
from unskew.ranking.candidates import Candidates
from unskew.ranking.positions import Positions
from unskew.registry import require_package
from unskew.types import IntVector, Scores


@dataclass(frozen=True, slots=True)
class GpuEngine:
    """Fits by alternating least squares and ranks items, with torch on a GPU.

    Parameters
    ----------
    device
        A torch device such as ``"cuda:1"``; ``"cpu"`` runs the same code without a GPU. By default
        the current CUDA device. Several devices of one host, such as ``("cuda:0", "cuda:1")``,
        share the ratings of a fit; the first one keeps all factors, and it alone ranks.
    memory
        Bytes of each device that the log may use. A larger log stays in the memory of the host and
        is copied in blocks, twice in every sweep. By default 80 % of the free memory.
    """

    device: str | Sequence[str] | None = None
    memory: int | None = None

    def run(self, request: FitRequest, /) -> FitResult:
        """Fit with the same sweeps and the same optimum as the local engine."""
        _require_torch()
        from unskew.engines.gpu.fitting import fit_on_devices

        return fit_on_devices(self.device, self.memory, request)

    def run_many(self, requests: Sequence[FitRequest], /) -> Iterator[FitResult]:
        """The results of :meth:`run` in the same order; fits of squared loss run at once."""
        _require_torch()
        from unskew.engines.gpu.batches import fit_many

        return fit_many(self.device, self.memory, requests)

    def run_pseudo_outcome(self, request: PseudoOutcomeRequest, /) -> Solution[Factors]:
        """Fit to all cells, with the same sweeps and the same optimum as the local engine."""
        _require_torch()
        from unskew.engines.gpu.pseudo_outcome import fit_pseudo_outcome_on_device

        return fit_pseudo_outcome_on_device(self.device, request)

    def positions(
        self,
        factors: Factors,
        user: IntVector,
        item: IntVector,
        candidates: Candidates | None = None,
        /,
    ) -> Positions:
        """The position of each logged cell among the candidates of its user."""
        _require_torch()
        from unskew.engines.gpu.ranking import compute_positions_on_device

        return compute_positions_on_device(self.device, factors, user, item, candidates)

    def best(
        self, factors: Factors, n_best: int, candidates: Candidates, /
    ) -> tuple[npt.NDArray[np.integer], Scores]:
        """The best items of each user and their scores, best first.

        Items that are not candidates of the user have the score -inf.
        """
        _require_torch()
        from unskew.engines.gpu.ranking import best_items_on_device

        return best_items_on_device(self.device, factors, n_best, candidates)


def _require_torch() -> None:
    require_package("torch", extra="gpu", purpose="engine='gpu'")
