"""Fits and rankings on a GPU: agreement with the results on processors, and speed.

    python benchmarks/gpu.py                              everything (10 minutes on an H200)
    python benchmarks/gpu.py --only dr,grid,exclusions    some of the parts
    python benchmarks/gpu.py --scale 0.002                small logs, for a trial without a GPU

The logs are long-tailed as in mf.py, and drawn on the device. A fit is timed after a warm-up, from
the log in the memory of the host to factors there. "local" are all threads of the host, timed once.

agreement   objectives and predictions of a factorisation of 1M ratings
speed       factorisation of 25M and 100M ratings, and its half-sweeps. "rows" is one half-sweep,
            counted as n (d + 1)(d + 2) operations and n (d + 1) gathered numbers
dr          doubly robust learning from 25M ratings, and weighted clicks
losses      log loss and implicit feedback with 1M ratings
grid        cross-validation: 60 fits of 1M ratings
exclusions  25M cells ranked among items that the user has not rated
devices     one log divided between two devices, which may be the same one
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Mapping
from time import perf_counter
from typing import Any

import numpy as np
import torch

import unskew
from unskew.data.factors import Factors
from unskew.engines.gpu.cells import sort_both_ways
from unskew.engines.gpu.engine import GpuEngine
from unskew.engines.gpu.solving import choose_row_solver
from unskew.engines.gpu.torch_rows import DeviceRows, RowPenalty
from unskew.errors import UnskewWarning
from unskew.models import (
    DoublyRobustFactorization,
    LogisticFactorization,
    RelevanceFactorization,
    WeightedFactorization,
)
from unskew.ranking.candidates import read_candidates
from unskew.ranking.positions import best_items, compute_positions
from unskew.threads import count_threads

SHAPES = {"1M": (6_000, 4_000), "25M": (160_000, 40_000), "100M": (480_000, 60_000)}
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
ENGINE = GpuEngine(DEVICE)
GRID = {"n_factors": [10, 20, 40], "l2": [1.0, 5.0, 25.0, 125.0, 625.0]}
"""With four folds, 60 fits."""
CASES = (("25M", 20, 5.0), ("25M", 20, 25.0), ("100M", 64, 25.0))


scale = 1.0


def synchronize() -> None:
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def draw(name: str) -> tuple[Any, Any]:
    """A simulated log, and its propensities."""
    n = int(int(name[:-1]) * 1_000_000 * scale)
    n_users, n_items = (int(size * scale**0.5) for size in SHAPES[name])
    rng = torch.Generator(device=DEVICE).manual_seed(0)

    def normal(*size: int) -> torch.Tensor:
        return torch.randn(*size, device=DEVICE, generator=rng)

    def shares(size: int, power: float) -> torch.Tensor:
        share = torch.arange(1, size + 1, device=DEVICE, dtype=torch.float64) ** -power
        share = share[torch.randperm(size, device=DEVICE, generator=rng)]
        return (share / share.sum()).cumsum(0)

    def pick(cumulated: torch.Tensor, size: int) -> torch.Tensor:
        at = torch.rand(size, device=DEVICE, generator=rng, dtype=torch.float64)
        return torch.searchsorted(cumulated, at).clamp(max=cumulated.numel() - 1)

    by_user, by_item = shares(n_users, 0.5), shares(n_items, 0.7)
    cells = torch.empty(0, dtype=torch.int64, device=DEVICE)
    while cells.numel() < n:
        cells = torch.unique(
            torch.cat([cells, pick(by_user, n // 2) * n_items + pick(by_item, n // 2)])
        )
    cells = cells[torch.randperm(cells.numel(), device=DEVICE, generator=rng)[:n]]
    user, item = cells // n_items, cells % n_items
    taste, trait = normal(n_users, 8) * 0.4, normal(n_items, 8) * 0.4
    offset = normal(n_users) * 0.4, normal(n_items) * 0.4
    rating = torch.empty(n, device=DEVICE)
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
    if DEVICE == "cuda":
        torch.cuda.empty_cache()
    return unskew.Ratings.from_codes(*codes, values, shape=(n_users, n_items)), unskew.Propensities(
        propensity
    )


def milliseconds(work: Callable[[], Any], n: int = 5) -> float:
    work()
    synchronize()
    began = perf_counter()
    for _ in range(n):
        work()
    synchronize()
    return (perf_counter() - began) / n * 1e3


def agree() -> None:
    log, propensity = draw("1M")
    columns = "engine | dtype | seconds | sweeps | objective / local"
    print(f"| {columns} | largest difference of a prediction |")
    print("|---|---|---|---|---|---|")
    reference: Any = None
    for engine, dtype in (("local", "float64"), (ENGINE, "float64"), (ENGINE, "float32")):
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
            f"| {getattr(engine, 'device', engine)} | {dtype} | {seconds:.2f} | {model.n_iter_} "
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
        model.fit(log, propensity, engine=ENGINE)
        times.append(perf_counter() - began)
    memory = torch.cuda.max_memory_allocated() / 2**30
    last = ", ".join(f"{seconds:.2f}" for seconds in times[1:])
    print(
        f"\n{name} ratings, {n_factors} factors, l2 {l2:g}, tol 1e-6: {last} s "
        f"(the first fit: {times[0]:.1f} s)"
    )
    how = f"converged {model.converged_}, objective {model.objective_:.7g}"
    print(f"{model.n_iter_} sweeps, {how}, peak {memory:.1f} GiB on the device")
    like = torch.empty(0, dtype=torch.float32, device=DEVICE)
    began = perf_counter()
    users, items = sort_both_ways(log, propensity.inverse, like=like, memory=1 << 40)
    synchronize()
    print(f"log to the device and sorted both ways: {perf_counter() - began:.2f} s")
    factors_of_fit = model.factors_
    for side, label, factors, offset in (
        (users, "users", factors_of_fit.item_factors, factors_of_fit.item_offset),
        (items, "items", factors_of_fit.user_factors, factors_of_fit.user_offset),
    ):
        rows = DeviceRows(
            torch.as_tensor(factors, device=DEVICE), torch.as_tensor(offset, device=DEVICE)
        )
        block, solve, ridge = (
            next(iter(side.blocks())),
            choose_row_solver(like, n_factors),
            RowPenalty(1e4, 1e4),
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
    model = unskew.MatrixFactorization(20, 25.0, dtype="float32").fit(
        log, propensity, engine=ENGINE
    )
    scorer, sample = model.scorer(log.users, log.items), log.users[:8_000]
    for _ in range(2):
        began = perf_counter()
        model.recommend(log.users, 10, engine=ENGINE)
        recommended, began = perf_counter() - began, perf_counter()
        on_gpu = ENGINE.positions(scorer, log.user, log.item)
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
        (model.recommend(sample, 10, engine=ENGINE).items == best.items).mean(),
        (on_host.above == on_gpu.above).mean(),
    )
    print(
        f"on {count_threads(None)} threads of the host: {len(sample):,} users "
        f"{recommended:.2f} s, positions {ranked:.2f} s; share that is equal: {same}"
    )


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    began = perf_counter()
    result = work()
    synchronize()
    return result, perf_counter() - began


def compare_fits(models: Mapping[str, Any], log: Any, propensity: Any) -> None:
    """Fit each model on the GPU, after a warm-up, and on the threads of the host."""
    print("\n| model | gpu, s | local, s | local / gpu | sweeps | objective, gpu / local |")
    print("|---|---|---|---|---|---|")
    for label, model in models.items():
        model.fit(log, propensity, engine=ENGINE)
        _, seconds = timed(lambda model=model: model.fit(log, propensity, engine=ENGINE))
        on_gpu, n_sweeps = model.objective_, model.n_iter_
        _, local = timed(lambda model=model: model.fit(log, propensity))
        ratio = on_gpu / model.objective_ - 1
        print(
            f"| {label} | {seconds:.2f} | {local:.2f} | {local / seconds:.1f} "
            f"| {n_sweeps} / {model.n_iter_} | 1{ratio:+.1e} |",
            flush=True,
        )


def compare_doubly_robust() -> None:
    log, propensity = draw("25M")
    settings: Any = {"dtype": "float32", "max_iter": 500}
    imputer = unskew.MatrixFactorization(10, 25.0)
    print(f"\n{len(log):,} ratings, {log.n_users:,} x {log.n_items:,}, float32")
    models = {
        "DR, 20 factors on 10 of the imputation": DoublyRobustFactorization(
            20, 25.0, imputer=imputer, **settings
        ),
        "Rel-MF, 20 factors": RelevanceFactorization(20, 1.0, relevance_threshold=4, **settings),
    }
    compare_fits(models, log, propensity)


def compare_losses() -> None:
    log, propensity = draw("1M")
    print(f"\n{len(log):,} ratings, {log.n_users:,} x {log.n_items:,}, 20 factors")
    models = {}
    for dtype in ("float64", "float32"):
        settings: Any = {"dtype": dtype, "max_iter": 500}
        logistic = LogisticFactorization(20, 5.0, relevance_threshold=4, **settings)
        models[f"log loss, {dtype}"] = logistic
        models[f"WMF, {dtype}"] = WeightedFactorization(20, 10.0, **settings)
    compare_fits(models, log, propensity)


def compare_grids() -> None:
    log, propensity = draw("1M")
    model = unskew.MatrixFactorization(dtype="float32")

    def search(engine: Any) -> Any:
        return unskew.cross_validate(
            model, log, propensities=propensity, grid=GRID, extend_grid=False, engine=engine
        )

    search(ENGINE)  # compiles one kernel for each number of factors
    (there, on_gpu), (here, on_host) = timed(lambda: search(ENGINE)), timed(lambda: search("local"))
    names = list(GRID)

    def scores(found: Any) -> dict[Any, float]:
        return {tuple(row[name] for name in names): row["score"] for row in found.table}

    apart = max(abs(scores(there)[each] / score - 1) for each, score in scores(here).items())
    n_fits = 4 * len(here.table)
    print(f"\n{n_fits} fits of three quarters of {len(log):,} ratings, and one of the whole:")
    print(
        f"gpu {on_gpu:.2f} s, local ({count_threads(None)} threads) {on_host:.2f} s, "
        f"ratio {on_host / on_gpu:.1f}"
    )
    print(
        f"chosen {there.best_params} and {here.best_params}, "
        f"scores differ by at most {apart:.1e} of themselves",
        flush=True,
    )


def compare_rankings_with_exclusions() -> None:
    """Rank among the items that are not in the training log, as evaluate(exclude=) does."""
    whole, propensity = draw("25M")
    is_test = np.random.default_rng(0).random(len(whole)) < 0.1
    test, train = whole.take(is_test), whole.take(~is_test)
    weights = unskew.Propensities(propensity.values[~is_test])
    model = unskew.MatrixFactorization(20, 25.0, dtype="float32").fit(train, weights, engine=ENGINE)
    scorer: Factors = model.scorer(whole.users, whole.items)  # type: ignore[assignment]
    candidates = read_candidates(whole.users, whole.items, None, train)
    shape = whole.n_users, whole.n_items
    print(f"\n{len(test):,} cells ranked without the {len(train):,} of the training log")
    print("\n| work | gpu, s | local, s | local / gpu | equal |\n|---|---|---|---|---|")

    def report(label: str, share: float, there: Callable[[], Any], here: Callable[[], Any]) -> None:
        there()
        (on_gpu, seconds), (on_host, local) = timed(there), timed(here)
        local /= share
        equal = np.mean(np.asarray(on_gpu)[: len(np.asarray(on_host))] == np.asarray(on_host))
        print(
            f"| {label} | {seconds:.2f} | {local:.2f} | {local / seconds:.1f} | {equal:.6f} |",
            flush=True,
        )

    report(
        "positions",
        1.0,
        lambda: ENGINE.positions(scorer, test.user, test.item, candidates).above,
        lambda: (
            compute_positions(test.user, test.item, *shape, scorer, candidates=candidates).above
        ),
    )
    sample = np.arange(max(1, whole.n_users // 20), dtype=np.int32)
    few = scorer.take(sample, np.arange(whole.n_items, dtype=np.int32))
    assert candidates is not None
    report(
        "ten best of all users (local: a twentieth, times 20)",
        len(sample) / whole.n_users,
        lambda: ENGINE.best(scorer, 10, candidates)[0],
        lambda: best_items(few, 10, sample.size, whole.n_items, candidates.take(sample))[0],
    )

    def evaluate(engine: Any) -> Any:
        return unskew.evaluate(
            test,
            {"mf": model},
            propensities=propensity.values[is_test] * 0.1,
            metrics=["ndcg@10", "recall@10"],
            relevance_threshold=4,
            estimators=["snips"],
            exclude=train,
            universe="log",
            engine=engine,
        )

    (there, seconds), (here, local) = (
        timed(lambda: evaluate(ENGINE)),
        timed(lambda: evaluate("local")),
    )
    estimates = [np.array(each.to_columns()["estimate"]) for each in (there, here)]
    apart = np.abs(estimates[0] / estimates[1] - 1).max()
    print(
        f"| evaluate(exclude=train): two metrics with intervals | {seconds:.2f} | {local:.2f} "
        f"| {local / seconds:.1f} | estimates to {apart:.1e} |",
        flush=True,
    )


def compare_devices() -> None:
    log, propensity = draw("25M")
    names = [DEVICE, DEVICE]
    if DEVICE == "cuda":
        n_devices = torch.cuda.device_count()
        names = [f"cuda:{number % n_devices}" for number in range(max(2, n_devices))]
    print("\n| devices | seconds | sweeps | objective |\n|---|---|---|---|")
    for devices in ([names[0]], names):
        model = unskew.MatrixFactorization(20, 25.0, dtype="float32")
        engine = GpuEngine(tuple(devices))
        model.fit(log, propensity, engine=engine)
        _, seconds = timed(lambda model=model, e=engine: model.fit(log, propensity, engine=e))
        row = f"{seconds:.2f} | {model.n_iter_} | {model.objective_:.9g}"
        print(f"| {', '.join(devices)} | {row} |", flush=True)


def ceilings() -> None:
    square = torch.randn(8192, 8192, device=DEVICE)
    product = 2 * 8192**3 / milliseconds(lambda: square @ square) / 1e9
    table, picks = (
        torch.randn(1 << 20, 32, device=DEVICE),
        torch.randint(1 << 20, (1 << 24,), device=DEVICE),
    )
    gather = 2 * picks.numel() * 32 * 4 / milliseconds(lambda: table[picks]) / 1e9
    print(
        f"\nupper limits: float32 product {product:.0f} TFLOP/s; torch's own gather of 128-byte "
        f"rows {gather:.1f} TB/s"
    )


def measure_speed() -> None:
    for case in CASES:
        time_fits(*case)
    time_ranking("25M")
    ceilings()


PARTS: Mapping[str, Callable[[], None]] = {
    "agreement": agree,
    "speed": measure_speed,
    "dr": compare_doubly_robust,
    "losses": compare_losses,
    "grid": compare_grids,
    "exclusions": compare_rankings_with_exclusions,
    "devices": compare_devices,
}


def main() -> None:
    global scale
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default=",".join(PARTS), help="parts, separated by commas")
    parser.add_argument("--scale", type=float, default=1.0, help="share of the ratings")
    arguments = parser.parse_args()
    scale = arguments.scale
    warnings.simplefilter("ignore", UnskewWarning)
    name = torch.cuda.get_device_name() if DEVICE == "cuda" else "cpu"
    print(name, "torch", torch.__version__, "local threads", count_threads(None), flush=True)
    for part in arguments.only.split(","):
        print(f"\n## {part}", flush=True)
        PARTS[part]()


if __name__ == "__main__":
    main()
