"""Logistic propensities with offsets of all users and items: time, memory and errors.

    python benchmarks/logistic_propensity.py       100,000 users x 20,000 items, 10 million ratings
    python benchmarks/logistic_propensity.py --users 20000 --items 5000 --ratings 1000000

The log is drawn from a logistic model with long-tailed offsets, two covariates of users and two of
items. Each case runs in its own process. "exact" sums over all cells, grouped by profile and number
of ratings. "sampled" has numeric covariates, so that all users differ, and samples unobserved
cells. Errors are relative to the true propensities, over a million random cells.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
from collections.abc import Iterator
from time import perf_counter

import numpy as np

from unskew.data.ratings import Ratings
from unskew.propensity.logistic import LogisticPropensity

CASES = {
    "offsets alone": "exact",
    "offsets, categories in all pairs": "exact",
    "offsets, numbers in all pairs": "sampled",
}
BLOCK = 250


class LogisticTruth:
    """logit P = c + gamma_u + beta_i + x_u M z_i'; c gives about ``n_ratings`` observed cells."""

    def __init__(self, n_users: int, n_items: int, n_ratings: int, case: str, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.rng, self.n_users, self.n_items = rng, n_users, n_items
        self.gamma, self.beta = (
            0.8 * rng.standard_normal(n_users),
            1.5 * rng.standard_normal(n_items),
        )
        draw = (
            rng.standard_normal
            if "numbers" in case
            else lambda shape: rng.integers(0, 2, shape).astype(float)
        )
        self.user, self.item = draw((n_users, 2)), draw((n_items, 2))
        self.pairs = np.array([[0.4, -0.3], [0.2, 0.3]]) * ("offsets alone" not in case)
        self.intercept = 0.0
        for _ in range(20):
            sample = self.probability(
                rng.integers(n_users, size=10**6), rng.integers(n_items, size=10**6)
            )
            self.intercept += np.log(n_ratings / (n_users * n_items) / sample.mean())

    def probability(self, user: np.ndarray, item: np.ndarray) -> np.ndarray:
        pairs = np.einsum("cj,jk,ck->c", self.user[user], self.pairs, self.item[item])
        return 1 / (1 + np.exp(-(self.intercept + self.gamma[user] + self.beta[item] + pairs)))

    def log(self) -> Ratings:
        users, items = zip(*self._blocks(), strict=True)
        user, item = np.concatenate(users), np.concatenate(items)
        return Ratings.from_codes(
            user, item, np.ones(user.size), shape=(self.n_users, self.n_items)
        )

    def _blocks(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        of_item, right = (
            (self.beta + self.intercept).astype(np.float32),
            (self.item @ self.pairs.T).T.astype(np.float32),
        )
        for first in range(0, self.n_users, BLOCK):
            rows = slice(first, first + BLOCK)
            logits = (
                (self.user[rows].astype(np.float32) @ right)
                + of_item
                + self.gamma[rows, None].astype(np.float32)
            )
            user, item = np.nonzero(
                self.rng.random(logits.shape, dtype=np.float32) * (1 + np.exp(-logits)) < 1
            )
            yield (user + first).astype(np.int32), item.astype(np.int32)


def megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure(case: str, arguments: argparse.Namespace) -> None:
    truth = LogisticTruth(arguments.users, arguments.items, arguments.ratings, case, arguments.seed)
    log = truth.log()
    before, start = megabytes(), perf_counter()
    covariates = (None, None) if case == "offsets alone" else (truth.user, truth.item)
    model = LogisticPropensity(*covariates, user_offsets=True, item_offsets=True, ridge=1.0)
    model.fit(log)
    taken, peak = perf_counter() - start, megabytes()
    user, item = (
        truth.rng.integers(truth.n_users, size=10**6),
        truth.rng.integers(truth.n_items, size=10**6),
    )
    estimated, true = model.predict_pairs(user, item), truth.probability(user, item)
    total = estimated.mean() * log.n_cells
    error = np.abs(estimated / true - 1)
    print(
        f"| {case} | {CASES[case]} | {len(log):,} | {taken:.0f} | {model.n_iter_} "
        f"| {before:.0f} | {peak:.0f} | {total / len(log):.4f} | {np.median(error):.3f} |",
        flush=True,
    )
    if not model.converged_:
        print("(not converged)")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--users", type=int, default=100_000)
    parser.add_argument("--items", type=int, default=20_000)
    parser.add_argument("--ratings", type=int, default=10_000_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--case", choices=CASES, help="measure one case in this process")
    arguments = parser.parse_args()
    if arguments.case:
        measure(arguments.case, arguments)
        return
    print(
        "| model | cells | observed | seconds | steps "
        "| MB before | peak MB | sum P / n | median error |\n" + "|---" * 9 + "|",
        flush=True,
    )
    for case in CASES:
        subprocess.run([sys.executable, __file__, *sys.argv[1:], "--case", case], check=True)


if __name__ == "__main__":
    main()
