"""Doubly robust learning on a completed MovieLens 100K, with propensities from a small sample.

    python benchmarks/semi_synthetic.py --data DIR [--trials 5] [--sample 1000]

As in Figure 3 of the paper, 5 % of the completed matrix are drawn with alpha = 0.25. Naive Bayes
gets the marginals of ``--sample`` random ratings. Every learner chooses its settings by four-fold
IPS cross-validation on that log with those propensities. Its error is the squared error over all
cells. "MF-IPS, free" is the model of the paper, with free offsets; "MF-IPS" also chooses offsets.
"""

from __future__ import annotations

import argparse
import warnings
from time import perf_counter
from typing import Any

import numpy as np
from scipy import stats

from unskew.errors import PropensityWarning
from unskew.model_selection.search import cross_validate
from unskew.models.doubly_robust import DoublyRobustFactorization
from unskew.models.matrix_factorization import MatrixFactorization
from unskew.paper.completion import find_ground_truth
from unskew.paper.draws import sample_ratings
from unskew.paper.figure3 import mse_of_all_cells
from unskew.propensity.naive_bayes import NaiveBayesPropensity

FAST: dict[str, Any] = {"tol": 3e-5, "max_iter": 100, "clip_predictions": False}
SMALL: dict[str, Any] = FAST | {"dtype": "float32"}
IMPUTERS = [
    MatrixFactorization(20, l2, offsets=offsets, **FAST)
    for l2, offsets in ((0.5, "none"), (1.0, "none"), (2.0, "free"))
]
ROBUST = {"l2": (1.0, 2.0), "offsets": ("free", "regularized"), "imputer": IMPUTERS}
LEARNERS = {
    "MF-IPS, free": (
        MatrixFactorization(20, offsets="free", **SMALL),
        {"l2": (0.5, 1.0, 2.0, 5.0)},
    ),
    "MF-IPS": (
        MatrixFactorization(20, **SMALL),
        {"l2": (0.5, 1.0, 2.0), "offsets": ("free", "regularized", "none")},
    ),
    "DR-JL": (
        DoublyRobustFactorization(20, weighting="dr-jl", penalizes="prediction", **SMALL),
        ROBUST,
    ),
    "MRDR": (
        DoublyRobustFactorization(20, weighting="mrdr", penalizes="prediction", **SMALL),
        ROBUST,
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", default=None)
    parser.add_argument("--trials", type=int, default=5)
    parser.add_argument("--sample", type=int, default=1000)
    options = parser.parse_args()
    warnings.simplefilter("ignore", PropensityWarning)
    ground_truth = find_ground_truth(options.data)
    observation = ground_truth.observation(0.25)
    errors: dict[str, list[float]] = {name: [] for name in LEARNERS}
    for trial in range(options.trials):
        rng = np.random.default_rng((0, 7, trial))
        log, _ = observation.draw(rng)
        bayes = NaiveBayesPropensity().fit(
            log, mcar=sample_ratings(ground_truth.ratings, options.sample, rng)
        )
        for name, (model, grid) in LEARNERS.items():
            began = perf_counter()
            search = cross_validate(
                model,
                log,
                propensities=bayes,
                grid=grid,
                extend_grid=False,
                random_state=trial,
            )
            errors[name].append(mse_of_all_cells(search.best_model, ground_truth.ratings))
            print(
                trial,
                name,
                f"{errors[name][-1]:.4f}",
                f"{perf_counter() - began:.0f} s",
                search.best_params,
                flush=True,
            )
    for name, values in errors.items():
        against = {
            other: np.subtract(values, errors[other])
            for other in ("MF-IPS, free", "MF-IPS")
            if other != name
        }
        tests = [
            f"{gap.mean():+.4f} (p = {stats.ttest_1samp(gap, 0).pvalue:.2g}) to {other}"
            for other, gap in against.items()
        ]
        print(f"{name}: {np.mean(values):.4f} ± {np.std(values, ddof=1):.4f};", "; ".join(tests))


if __name__ == "__main__":
    main()
