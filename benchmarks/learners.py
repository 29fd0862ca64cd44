"""Learners on Coat with ratings of 4 and more as clicks: MSE, AUC and NDCG@5 on the random test.

    python benchmarks/learners.py --data DIR [--seeds 3] [--clicks 4] [--json FILE]

For errors of ratings, see `unskew leaderboard coat`. In each repetition settings are chosen by
four-fold cross-validation on the training log alone, by IPS with the published propensities (naive
learners without them). All learners have the same penalties. The seed of a repetition determines
the folds and the initial factors.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from time import perf_counter

import unskew
from unskew.data.clicks import binarize
from unskew.model_selection.comparison import compare_learners
from unskew.model_selection.learners import Learner
from unskew.models.doubly_robust import DoublyRobustFactorization
from unskew.models.logistic import LogisticFactorization
from unskew.models.matrix_factorization import MatrixFactorization

FAST = {"tol": 1e-5, "max_iter": 200, "clip_predictions": False}
PUBLISHED = FAST | {"penalizes": "prediction"}


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
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--clicks", type=float, default=4.0)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    coat = unskew.datasets.load_coat(options.data)
    train, test = (binarize(log, options.clicks) for log in (coat.train, coat.test))
    began = perf_counter()
    comparison = compare_learners(
        train,
        click_learners(),
        test={"all": test, "clean": test.take(~coat.overlap)},
        propensities=coat.propensities,
        n_repeats=options.seeds,
        metrics=("mse", "logged_auc", "logged_user_auc", "logged_ndcg@5"),
        relevance_threshold=1,
        reference="MF-IPS",
        verbose=True,
    )
    print(comparison)
    print(f"{perf_counter() - began:.0f} s")
    if options.json:
        options.json.write_text(comparison.to_json())


if __name__ == "__main__":
    main()
