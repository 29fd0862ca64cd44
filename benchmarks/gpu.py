"""Factorisation on a GPU: agreement with the result on processors, and speed.

    python benchmarks/gpu.py                     1M, 25M and 100M ratings (2 minutes on an H200)
    python benchmarks/gpu.py --only agreement

The agreement is checked on 1M ratings. Speed is measured with 25M ratings and 20 factors, and with
100M ratings and 64 factors. The logs are long-tailed as in mf.py, and drawn on the device. A fit is
timed twice after a warm-up, from the log in the memory of the host to factors there. "rows" is one
half-sweep, counted as n (d + 1)(d + 2) operations and n (d + 1) gathered numbers.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from time import perf_counter
from typing import Any

import numpy as np
import torch

import unskew
from unskew.engines.gpu.cells import sort_both_ways
from unskew.engines.gpu.engine import GpuEngine
from unskew.engines.gpu.fitting import choose_row_solver
from unskew.engines.gpu.torch_rows import DeviceRows, Penalty
from unskew.ranking.positions import compute_positions
from unskew.threads import count_threads

SHAPES = {"1M": (6_000, 4_000), "25M": (160_000, 40_000), "100M": (480_000, 60_000)}
CASES = (("25M", 20, 5.0), ("25M", 20, 25.0), ("100M", 64, 25.0))


def draw(name: str) -> tuple[Any, Any]:
    """A simulated log, and its propensities."""
    (n_users, n_items), n = SHAPES[name], int(name[:-1]) * 1_000_000
    rng = torch.Generator(device="cuda").manual_seed(0)

    def normal(*size: int) -> torch.Tensor:
        return torch.randn(*size, device="cuda", generator=rng)

    def shares(size: int, power: float) -> torch.Tensor:
        share = torch.arange(1, size + 1, device="cuda", dtype=torch.float64) ** -power
        share = share[torch.randperm(size, device="cuda", generator=rng)]
        return (share / share.sum()).cumsum(0)

    def pick(cumulated: torch.Tensor, size: int) -> torch.Tensor:
        at = torch.rand(size, device="cuda", generator=rng, dtype=torch.float64)
        return torch.searchsorted(cumulated, at).clamp(max=cumulated.numel() - 1)

    by_user, by_item = shares(n_users, 0.5), shares(n_items, 0.7)
    cells = torch.empty(0, dtype=torch.int64, device="cuda")
    while cells.numel() < n:
        cells = torch.unique(
            torch.cat([cells, pick(by_user, n // 2) * n_items + pick(by_item, n // 2)])
        )
    cells = cells[torch.randperm(cells.numel(), device="cuda", generator=rng)[:n]]
    user, item = cells // n_items, cells % n_items
    taste, trait = normal(n_users, 8) * 0.4, normal(n_items, 8) * 0.4
    offset = normal(n_users) * 0.4, normal(n_items) * 0.4
    rating = torch.empty(n, device="cuda")
    for part in (slice(first, first + 10_000_000) for first in range(0, n, 10_000_000)):
        u, i = user[part], item[part]
        score = (
            3.3
            + (taste[u] * trait[i]).sum(1)
            + offset[0][u]
            + offset[1][i]
            + 0.7 * normal(u.numel())
        )
        rating[part] = score.round().clamp(1, 5)
    weight = torch.exp(-0.5 * rating.double())
    weight *= n_users * n_items / weight.sum()
    codes, values = (
        (user.int().cpu().numpy(), item.int().cpu().numpy()),
        rating.double().cpu().numpy(),
    )
    propensity = (1 / weight).cpu().numpy()
    torch.cuda.empty_cache()
    return unskew.Ratings.from_codes(*codes, values, shape=(n_users, n_items)), unskew.Propensities(
        propensity
    )


def milliseconds(work: Callable[[], Any], n: int = 5) -> float:
    work()
    torch.cuda.synchronize()
    began = perf_counter()
    for _ in range(n):
        work()
    torch.cuda.synchronize()
    return (perf_counter() - began) / n * 1e3


def agree() -> None:
    log, propensity = draw("1M")
    columns = "engine | dtype | seconds | sweeps | objective / local"
    print(f"| {columns} | largest difference of a prediction |")
    print("|---|---|---|---|---|---|")
    reference: Any = None
    for engine, dtype in (("local", "float64"), ("gpu", "float64"), ("gpu", "float32")):
        model = unskew.MatrixFactorization(20, 25.0, dtype=dtype, tol=1e-8, max_iter=2000)  # type: ignore[arg-type]
        began = perf_counter()
        model.fit(log, propensity, engine=engine)
        seconds = perf_counter() - began
        reference = reference or model
        sample = np.random.default_rng(0).integers(0, len(log), 100_000)
        cells = log.users[log.user[sample]], log.items[log.item[sample]]
        apart = np.abs(model.predict(*cells) - reference.predict(*cells)).max()
        ratio = model.objective_ / reference.objective_ - 1
        print(
            f"| {engine} | {dtype} | {seconds:.2f} | {model.n_iter_} "
            f"| 1{ratio:+.1e} | {apart:.1e} |",
            flush=True,
        )


def time_fits(name: str, n_factors: int, l2: float) -> None:
    log, propensity = draw(name)
    model = unskew.MatrixFactorization(n_factors, l2, dtype="float32")
    times = []
    for _ in range(3):
        torch.cuda.reset_peak_memory_stats()
        began = perf_counter()
        model.fit(log, propensity, engine="gpu")
        times.append(perf_counter() - began)
    memory = torch.cuda.max_memory_allocated() / 2**30
    last = ", ".join(f"{seconds:.2f}" for seconds in times[1:])
    print(
        f"\n{name} ratings, {n_factors} factors, l2 {l2:g}, tol 1e-6: {last} s "
        f"(the first fit: {times[0]:.1f} s)"
    )
    how = f"converged {model.converged_}, objective {model.objective_:.7g}"
    print(f"{model.n_iter_} sweeps, {how}, peak {memory:.1f} GiB on the device")
    like = torch.empty(0, dtype=torch.float32, device="cuda")
    began = perf_counter()
    users, items = sort_both_ways(log, propensity.inverse, like=like, memory=1 << 40)
    torch.cuda.synchronize()
    print(f"log to the device and sorted both ways: {perf_counter() - began:.2f} s")
    factors_of_fit = model.factors_
    for side, label, factors, offset in (
        (users, "users", factors_of_fit.item_factors, factors_of_fit.item_offset),
        (items, "items", factors_of_fit.user_factors, factors_of_fit.user_offset),
    ):
        rows = DeviceRows(
            torch.as_tensor(factors, device="cuda"), torch.as_tensor(offset, device="cuda")
        )
        block, solve, ridge = (
            next(iter(side.blocks())),
            choose_row_solver(like, n_factors),
            Penalty(1e4, 1e4),
        )
        taken = milliseconds(
            lambda block=block, solve=solve, rows=rows, ridge=ridge: solve(
                block, rows, factors_of_fit.global_offset, ridge
            )
        )
        flops, numbers = (
            len(log) * (n_factors + 1) * (n_factors + 2),
            len(log) * (n_factors + 1) * 4,
        )
        print(
            f"rows of {label}: {taken:.2f} ms, {flops / taken / 1e9:.1f} TFLOP/s, "
            f"{numbers / taken / 1e9:.2f} TB/s gathered",
            flush=True,
        )


def time_ranking(name: str) -> None:
    """Rank all items for all users: the ten best of each, and the position of each logged cell."""
    log, propensity = draw(name)
    model = unskew.MatrixFactorization(20, 25.0, dtype="float32").fit(log, propensity, engine="gpu")
    scorer, sample = model.scorer(log.users, log.items), log.users[:8_000]
    for _ in range(2):
        began = perf_counter()
        model.recommend(log.users, 10, engine="gpu")
        recommended, began = perf_counter() - began, perf_counter()
        on_gpu = GpuEngine().positions(scorer, log.user, log.item)
        ranked = perf_counter() - began
    print(
        f"\n{name}, 20 factors: ten best of {log.n_users:,} users {recommended:.2f} s, "
        f"positions of all cells {ranked:.2f} s"
    )
    began = perf_counter()
    best = model.recommend(sample, 10)
    recommended, began = perf_counter() - began, perf_counter()
    on_host = compute_positions(log.user, log.item, log.n_users, log.n_items, scorer)
    ranked = perf_counter() - began
    same = (
        (model.recommend(sample, 10, engine="gpu").items == best.items).mean(),
        (on_host.above == on_gpu.above).mean(),
    )
    print(
        f"on {count_threads(None)} threads of the host: {len(sample):,} users "
        f"{recommended:.2f} s, positions {ranked:.2f} s; share that is equal: {same}"
    )


def ceilings() -> None:
    square = torch.randn(8192, 8192, device="cuda")
    product = 2 * 8192**3 / milliseconds(lambda: square @ square) / 1e9
    table, picks = (
        torch.randn(1 << 20, 32, device="cuda"),
        torch.randint(1 << 20, (1 << 24,), device="cuda"),
    )
    gather = 2 * picks.numel() * 32 * 4 / milliseconds(lambda: table[picks]) / 1e9
    print(
        f"\nupper limits: float32 product {product:.0f} TFLOP/s; torch's own gather of 128-byte "
        f"rows {gather:.1f} TB/s"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", choices=["agreement", "speed"])
    arguments = parser.parse_args()
    print(torch.cuda.get_device_name(), "torch", torch.__version__, "engine", GpuEngine())
    if arguments.only != "speed":
        agree()
    if arguments.only != "agreement":
        for case in CASES:
            time_fits(*case)
        time_ranking("25M")
        ceilings()


if __name__ == "__main__":
    main()
