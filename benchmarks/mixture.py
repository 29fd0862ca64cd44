"""Mixtures of clusters of users on a log of the size of Yahoo! R3.

    python benchmarks/mixture.py --mechanism cpt-v --clusters 20 --restarts 5

15,400 users x 1,000 items, 311,704 ratings from 1 to 5. Ratings and selection are drawn from the
model itself, with items of unequal popularity. The kernels are compiled beforehand.
"""

from __future__ import annotations

import argparse
import warnings
from time import perf_counter

import numpy as np

from unskew.data.ratings import Ratings
from unskew.errors import ConvergenceWarning
from unskew.models.mixture import MultinomialMixture

N_USERS, N_ITEMS, N_RATINGS, BLOCK = 15_400, 1_000, 311_704, 1_000
PROPENSITY = np.array([0.010, 0.012, 0.018, 0.030, 0.060])
"""P(O = 1 | Y = r)."""


def draw(n_clusters: int) -> Ratings:
    """A log drawn in blocks of users, cut to the number of ratings in Yahoo! R3."""
    rng = np.random.default_rng(0)
    below = np.cumsum(rng.dirichlet(np.full(5, 0.5), size=(n_clusters, N_ITEMS)), axis=2)[:, :, :-1]
    popularity = rng.gamma(1.0, size=N_ITEMS)
    blocks = []
    for first in range(0, N_USERS, BLOCK):
        cluster = rng.integers(n_clusters, size=min(BLOCK, N_USERS - first))
        level = (rng.random((cluster.size, N_ITEMS, 1)) > below[cluster]).sum(axis=2)
        user, item = np.nonzero(rng.random(level.shape) < PROPENSITY[level] * popularity)
        blocks.append((user + first, item, 1 + level[user, item]))
    user, item, rating = (np.concatenate(parts) for parts in zip(*blocks, strict=True))
    kept = rng.permutation(user.size)[:N_RATINGS]
    return Ratings.from_codes(user[kept], item[kept], rating[kept], shape=(N_USERS, N_ITEMS))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--mechanism", choices=("mar", "cpt-v", "logit-vd"), default="cpt-v")
    parser.add_argument("--clusters", type=int, default=20)
    parser.add_argument("--restarts", type=int, default=5)
    parser.add_argument("--threads", type=int)
    arguments = parser.parse_args()
    log = draw(arguments.clusters)
    value_propensities = None if arguments.mechanism == "mar" else PROPENSITY
    model = MultinomialMixture(
        arguments.mechanism,
        arguments.clusters,
        n_restarts=arguments.restarts,
        n_threads=arguments.threads,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warm_up = MultinomialMixture(arguments.mechanism, 2, n_restarts=1, max_iter=1)
        warm_up.fit(log, value_propensities=value_propensities)
    began = perf_counter()
    model.fit(log, value_propensities=value_propensities)
    seconds = perf_counter() - began
    sweep = 1000 * seconds / model.n_iter_ / arguments.restarts
    ended = "converged" if model.converged_ else "not converged"
    print(f"{log}\n{model!r}: {model.n_iter_} sweeps of each start, {ended}")
    print(f"{seconds:.1f} s, {sweep:.1f} ms a sweep")


if __name__ == "__main__":
    main()
