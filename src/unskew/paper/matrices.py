"""The five prediction matrices of Section 3.4, each wrong in its own way."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy import special

Ratings5 = npt.NDArray[np.float32]


def prediction_matrices(truth: Ratings5, rng: np.random.Generator) -> dict[str, Ratings5]:
    """REC_ONES, REC_FOURS, ROTATE, SKEWED and COARSENED, drawn once for a truth of ratings 1 to 5."""
    return {
        "REC_ONES": promote(truth, 1, rng),
        "REC_FOURS": promote(truth, 4, rng),
        "ROTATE": np.where(truth >= 2, truth - 1, 5).astype(np.float32),
        "SKEWED": skew(truth, rng),
        "COARSENED": np.where(truth <= 3, 3, 4).astype(np.float32),
    }


def skew(truth: Ratings5, rng: np.random.Generator) -> Ratings5:
    """N(Y, sd (6 - Y) / 2) clipped to [0, 6].

    Each level's noise is the normal quantiles in random order, so that the error follows from the marginals alone, without luck.
    """
    skewed = truth.copy()
    for level in np.unique(truth):
        cells = np.flatnonzero(truth == level)
        noise = special.ndtri((np.arange(cells.size) + 0.5) / cells.size)
        skewed.flat[cells] = np.clip(level + rng.permutation(noise) * (6 - level) / 2, 0, 6)
    return skewed


def promote(truth: Ratings5, rating: int, rng: np.random.Generator) -> Ratings5:
    """The truth, but as many random cells of ``rating`` as there are fives become fives."""
    promoted = truth.copy()
    chosen = rng.choice(
        np.flatnonzero(truth == rating), size=int((truth == 5).sum()), replace=False
    )
    promoted.flat[chosen] = 5
    return promoted
