"""New users of a fitted model in blocks: time and memory of ``fold_in`` and of their best items.

    python benchmarks/serving.py                        # 1,000,000 new users, 20 ratings each
    python benchmarks/serving.py --users 100000 --block 10000

The model has 10,000 items and 20 factors. Each block of new users is drawn, folded in without the
users of the fit, and its ten best items are found; then the block is dropped. "added MB" is the
peak of the memory beyond that of the process with the fitted model.
"""

from __future__ import annotations

import argparse
import warnings
from time import perf_counter, process_time

import numpy as np
from mf import memory_mb, reset_peak

N_ITEMS, N_FACTORS, N_RATINGS = 10_000, 20, 20


def draw_block(rng: np.random.Generator, first_user: int, n_users: int, share: np.ndarray):  # type: ignore[no-untyped-def]
    """Ratings of new users: a few popular items each."""
    import unskew

    user = np.repeat(np.arange(first_user, first_user + n_users), N_RATINGS)
    item = rng.choice(N_ITEMS, user.size, p=share)
    cell = np.unique(user * np.int64(N_ITEMS) + item)
    rating = rng.integers(1, 6, cell.size).astype(float)
    return unskew.Ratings.from_arrays(cell // N_ITEMS, cell % N_ITEMS, rating)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--users", type=int, default=1_000_000)
    parser.add_argument("--block", type=int, default=20_000)
    parser.add_argument("--recommend", action="store_true", help="also find the ten best items")
    options = parser.parse_args()
    import unskew

    warnings.simplefilter("ignore")
    rng = np.random.default_rng(0)
    share = np.arange(1, N_ITEMS + 1.0) ** -0.7
    share /= share.sum()
    model = unskew.MatrixFactorization(N_FACTORS, 5.0, max_iter=5)
    model.fit(draw_block(rng, 0, 20_000, share))
    known = np.flatnonzero(np.isin(np.arange(N_ITEMS), model.items_))
    assert known.size == N_ITEMS, "every item needs a rating"
    before, folding, ranking, wall = reset_peak(), 0.0, 0.0, perf_counter()
    for first in range(0, options.users, options.block):
        block = draw_block(rng, 10**6 + first, min(options.block, options.users - first), share)
        start = process_time()
        served = model.fold_in(block, keep_known=False)
        folding += process_time() - start
        if options.recommend:
            start = process_time()
            served.recommend(k=10)
            ranking += process_time() - start
    wall = perf_counter() - wall
    print("| new users | block | fold_in, processor s | recommend, processor s | MB | added MB |")
    print("|---" * 6 + "|")
    peak = memory_mb("VmHWM")
    print(
        f"| {options.users:,} | {options.block:,} | {folding:.1f} | {ranking:.1f} | {peak:.0f} "
        f"| {peak - before:.0f} |"
    )


if __name__ == "__main__":
    main()
