"""The settings that the leaderboard tries, written down before any of its test errors was seen.

Every learner that has a setting named in ``GRID`` chooses among the same values, whoever proposed
the learner. A learner that is declared later gets its grid by the same rule, without an edit here.

How blind these grids are: penalties are half decades over the range that
docs/decisions/023-defaults.md names, which is that of the authors' code. Ranks are the default of
each learner, which was chosen on simulated worlds. On Coat's test, errors of *other* grids had
been printed in docs/results.md before this date, so the range is not blind to them; the values,
the imputers and the rule of choice were not adjusted to any test error. On other data everything
is blind. The rule of choice is that of the paper: four folds of the log, IPS with the
propensities of the protocol, the least mean over folds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from unskew.models.matrix_factorization import MatrixFactorization

WRITTEN = "2026-11-18"
"""The day on which the grids were written down."""
N_FOLDS, ESTIMATOR, METRIC = 4, "ips", "mse"
"""How cross-validation chooses; naive learners use a plain average in place of IPS."""
PRECISION: Mapping[str, Any] = {"tol": 1e-5}
"""Of every fit whose learner has this setting and an ``l2``."""

L2 = (0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
OFFSETS = ("regularized", "free", "none")
IMPUTERS = tuple(
    MatrixFactorization(l2=10.0, offsets=offsets, **PRECISION)
    for offsets in ("regularized", "none")
)
MODELS = tuple(
    MatrixFactorization(l2=l2, offsets=offsets, **PRECISION)  # type: ignore[arg-type]
    for offsets in OFFSETS
    for l2 in L2
)
GRID: Mapping[str, Sequence[Any]] = {
    "l2": L2,
    "offsets": OFFSETS,
    "imputer": IMPUTERS,
    "model": MODELS,
    "n_clusters": (1, 2, 5, 10),
    "offset_precision": (0.5, 1.5, 5.0),
}
"""By name of a setting: its values. ``model`` is the factorisation inside a learner."""
RANKS_WITHOUT_L2 = (0, 10)
"""Values of ``n_factors`` for learners without an ``l2``, whose penalty of the factors is a prior:
0 stands for the strongest one. Learners with an ``l2`` keep their default rank."""
