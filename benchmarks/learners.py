"""Every learner on Coat: errors on the random test, with and without cells of the training log.

    python benchmarks/learners.py --data DIR [--seeds 10] [--only NAME ...] [--json FILE]
    python benchmarks/learners.py --data DIR --wide        MF-IPS and MRDR with complete grids
    python benchmarks/learners.py --data DIR --clicks 4    ratings >= 4 are clicks: MSE, AUC, NDCG@5

In each repetition settings are chosen by four-fold cross-validation on the training log alone, by
IPS with the published propensities (naive learners without them). The seed of a repetition
determines the folds and the initial factors. The grids were chosen with some knowledge of the
results: see docs/results.md.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from time import perf_counter
from typing import Any

import unskew
from unskew.data.clicks import binarize
from unskew.estimators.transforms import Dynamic
from unskew.model_selection.comparison import compare_learners
from unskew.model_selection.learners import Learner
from unskew.models.balanced import IPSV2, StableDR
from unskew.models.doubly_robust import DRV2, EIB, TDR, DoublyRobustFactorization
from unskew.models.logistic import LogisticFactorization
from unskew.models.matrix_factorization import MatrixFactorization
from unskew.models.tri_training import TriTraining

FAST = {"tol": 1e-5, "max_iter": 200, "clip_predictions": False}
PUBLISHED = FAST | {"penalizes": "prediction"}
PREDICTION = {"l2": (10.0, 25.0, 50.0)}
IMPUTERS = tuple(
    MatrixFactorization(n_factors, l2, offsets="none", **FAST)
    for n_factors, l2 in ((5, 1.0), (20, 1.0), (20, 5.0))
)
ROBUST = PREDICTION | {"imputer": IMPUTERS}
WEIGHTED = {"l2": (5.0, 10.0, 25.0, 50.0), "offsets": ("free", "regularized")}


def learners(matrix: Any) -> dict[str, Learner]:
    factorization = MatrixFactorization(40, **FAST)
    robust = DoublyRobustFactorization(40, weighting="mrdr", **PUBLISHED)
    clips = (unskew.estimators.Clip(10), unskew.estimators.Clip(30))
    weightings = {"DR-JL": "dr-jl", "MRDR": "mrdr", "DR-BIAS": "dr-bias", "DR-MSE": "dr-mse"}
    attempts = tuple(MatrixFactorization(40, l2, **FAST) for l2 in (10.0, 25.0, 50.0))
    return {
        "MF-IPS": Learner(factorization, WEIGHTED),
        "MF-Naive": Learner(factorization, WEIGHTED, is_naive=True),
        "MF-SNIPS": Learner(MatrixFactorization(40, normalize="self", **FAST), WEIGHTED),
        "MF-IPS, no offsets": Learner(
            MatrixFactorization(40, offsets="none", **FAST), {"l2": WEIGHTED["l2"]}
        ),
        "D-IPS": Learner(
            MatrixFactorization(40, weight_transform=Dynamic(), **FAST),
            {"l2": (1.0, 5.0, 10.0, 25.0)},
        ),
        "IPS-V2": Learner(IPSV2(40, n_rounds=2, **FAST), PREDICTION),
        "ATT": Learner(TriTraining(n_rounds=3), {"model": attempts}),
        "EIB": Learner(EIB(40, **PUBLISHED), ROBUST),
        **{
            name: Learner(DoublyRobustFactorization(40, weighting=weighting, **PUBLISHED), ROBUST)
            for name, weighting in weightings.items()
        },
        "MRDR, errors": Learner(
            DoublyRobustFactorization(
                40, weighting="mrdr", imputation="error", n_rounds=2, **PUBLISHED
            ),
            ROBUST,
        ),
        "MRDR, clipped": Learner(robust, ROBUST | {"weight_transform": clips}),
        "D-DR": Learner(
            DoublyRobustFactorization(
                40, weighting="mrdr", weight_transform=Dynamic(), **PUBLISHED
            ),
            ROBUST,
        ),
        "TDR": Learner(
            TDR(40, weighting="mrdr", **PUBLISHED), ROBUST, propensities=matrix, tuned_as=robust
        ),
        "DR-V2": Learner(DRV2(40, n_rounds=2, **PUBLISHED), ROBUST),
        "StableDR": Learner(StableDR(40, n_rounds=2, **FAST), ROBUST),
    }


def wide_learners() -> dict[str, Learner]:
    """Two learners with all settings in their grids that one would try after reading the paper."""
    penalties, offsets = (1.0, 5.0, 10.0, 25.0, 50.0), ("none", "free", "regularized")
    imputers = tuple(
        MatrixFactorization(n_factors, l2, offsets=kind, **FAST)
        for n_factors in (5, 20, 40)
        for l2 in (0.2, 1.0, 5.0, 25.0)
        for kind in offsets
    )
    return {
        "MF-IPS": Learner(MatrixFactorization(40, **FAST), {"l2": penalties, "offsets": offsets}),
        "MRDR": Learner(
            DoublyRobustFactorization(40, weighting="mrdr", **PUBLISHED),
            PREDICTION | {"imputer": imputers},
        ),
    }


def click_learners() -> dict[str, Learner]:
    grid, imputers = (
        {"l2": (1.0, 5.0, 10.0, 25.0)},
        tuple(MatrixFactorization(5, l2, offsets="none", **FAST) for l2 in (0.2, 1.0)),
    )
    squared, logistic = MatrixFactorization(40, **FAST), LogisticFactorization(40, **FAST)
    return {
        "MF-IPS": Learner(squared, grid),
        "MF-Naive": Learner(squared, grid, is_naive=True),
        "logistic, IPS": Learner(logistic, grid),
        "logistic, naive": Learner(logistic, grid, is_naive=True),
        "DR-JL": Learner(
            DoublyRobustFactorization(40, weighting="dr-jl", **PUBLISHED),
            grid | {"imputer": imputers},
        ),
        "MRDR": Learner(
            DoublyRobustFactorization(40, weighting="mrdr", **PUBLISHED),
            grid | {"imputer": imputers},
        ),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", default=None)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--clicks", type=float)
    parser.add_argument("--wide", action="store_true")
    options = parser.parse_args()
    coat = unskew.datasets.load_coat(options.data)
    train, test = (binarize(log, options.clicks) for log in (coat.train, coat.test))
    chosen = wide_learners() if options.wide else learners(coat.propensity_matrix)
    if options.clicks is not None:
        chosen = click_learners()
    metrics = (
        ("mse", "mae")
        if options.clicks is None
        else ("mse", "logged_auc", "logged_user_auc", "logged_ndcg@5")
    )
    chosen = {name: chosen[name] for name in dict.fromkeys(["MF-IPS", *(options.only or chosen)])}
    tests = {"all": test, "clean": test.take(~coat.overlap)}
    began = perf_counter()
    settings = {
        "n_repeats": options.seeds,
        "metrics": metrics,
        "relevance_threshold": 1,
        "reference": "MF-IPS",
        "verbose": True,
    }
    comparison = compare_learners(
        train, chosen, test=tests, propensities=coat.propensities, **settings
    )
    print(comparison)
    print(f"{perf_counter() - began:.0f} s")
    if options.json:
        options.json.write_text(comparison.to_json())


if __name__ == "__main__":
    main()
