"""evaluate_frame on Parquet files, compared with the same sums written by hand in SQL.

    python benchmarks/frames.py --rows 10000000 100000000 --folder /tmp
    python benchmarks/frames.py --rows 1000000 --cluster user_id
    python benchmarks/frames.py --rows 1000000 --strata

The file is written in row groups of a million rows, and deleted at the end. Each contender runs in
its own process, so that its peak memory can be measured. Times are medians over rounds of all
contenders, after a warm-up. The hand-written SQL computes the sums that MSE and MAE of two models
need for naive, IPS and SNIPS. It also counts invalid rows, because a sum over NaNs is useless.

With ``--strata`` the propensities are those of naive Bayes, by rating, and their estimation is part
of the standard errors. By hand: one query by rating for independent cells; with clusters, a first
query by rating for the means, and a second one by user of contributions minus these means.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

N_USERS, N_ITEMS, CHUNK = 1_000_000, 100_000, 1_000_000


def write(path: Path, n_rows: int) -> None:
    """A simulated log of ratings from 1 to 5, with propensities that rise with them."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(0)
    writer = None
    for start in range(0, n_rows, CHUNK):
        size = min(CHUNK, n_rows - start)
        rating = rng.integers(1, 6, size)
        columns = {
            "user_id": rng.integers(N_USERS, size=size),
            "item_id": rng.integers(N_ITEMS, size=size),
            "rating": rating.astype(np.float64),
            "svd": rating + rng.normal(0, 1, size),
            "neural": rating + rng.normal(0.1, 0.9, size),
            "propensity": np.minimum(1.0, 0.02 * rating + rng.uniform(0.01, 0.1, size)),
        }
        table = pa.table(columns)
        writer = writer or pq.ParquetWriter(path, table.schema)
        writer.write_table(table, row_group_size=CHUNK)
    if writer is not None:
        writer.close()


@cache
def fit(path: Path) -> Any:
    """Naive Bayes with 1,000 random ratings."""
    import duckdb

    from unskew import NaiveBayesPropensity

    sample = dict(zip(map(float, range(1, 6)), (300, 250, 200, 150, 100), strict=True))
    frame = duckdb.read_parquet(str(path))
    return NaiveBayesPropensity().fit_frame(frame, mcar=sample, universe=(N_USERS, N_ITEMS))


def strata_by_hand(path: Path, cluster: str | None) -> float:
    """The same with propensities by rating. Returns the SNIPS standard error of an MSE."""
    import duckdb

    model = fit(path)
    levels = model.levels_.tolist()
    h, v = 1 / model.propensity_by_level_, 1 - model.propensity_by_level_
    deltas = {"mse": ["se1", "se2"], "mae": ["ae1", "ae2"]}
    columns = [*deltas["mse"], *deltas["mae"], "one"]
    pairs = list(
        dict.fromkeys(
            (a, b)
            for x in deltas.values()
            for i, a in enumerate([*x, "one"])
            for b in [*x, "one"][i:]
        )
    )
    source = f"""
        SELECT user_id AS unit, rating, 1.0::DOUBLE AS one,
               (rating - svd) * (rating - svd) AS se1, (rating - neural) * (rating - neural) AS se2,
               abs(rating - svd) AS ae1, abs(rating - neural) AS ae2,
               CASE WHEN rating IS NULL OR NOT isfinite(rating) THEN 1 ELSE 0 END
               + CASE WHEN svd IS NULL OR NOT isfinite(svd) THEN 1 ELSE 0 END
               + CASE WHEN neural IS NULL OR NOT isfinite(neural) THEN 1 ELSE 0 END AS bad
        FROM read_parquet('{path}')"""
    sums = [f"sum({x}) AS t_{x}" for x in columns]
    sums += [f"sum({a} * {b}) AS m_{a}_{b}" for a, b in pairs]
    result = duckdb.sql(
        f"SELECT rating, {', '.join(sums)}, sum(bad) FROM ({source}) "
        "GROUP BY rating ORDER BY rating"
    )
    table = dict(zip(result.columns, np.array(result.fetchall(), dtype=float).T, strict=True))
    n, total, moment = table["t_one"], table["t_se1"], table["m_se1_se1"]
    mass = float(h @ n)
    risk = float(h @ total) / mass
    residual = total - risk * n
    if cluster is None:
        spread = moment - 2 * risk * total + risk**2 * n - residual**2 / n
        variance = float((h * h * v * n / (n - 1)) @ spread) / mass**2
    else:
        leverage = np.sqrt(n / (n - 1))

        def look_up(values: Any) -> str:
            cases = (
                f"WHEN {level}::DOUBLE THEN {value!r}::DOUBLE"
                for level, value in zip(levels, values.tolist(), strict=True)
            )
            return f"CASE rating {' '.join(cases)} END"

        known = [f"sum(w * {x}) AS w_{x}" for x in columns] + [
            f"sum({x}) AS n_{x}" for x in columns
        ]
        centred = [
            f"sum(w * lev * {x} - {look_up(leverage * h * table[f't_{x}'] / n)}) AS c_{x}"
            for x in columns[:-1]
        ]
        products = [f"sum({k}_{a} * {k}_{b}) AS {k}_{a}_{b}" for k in "wn" for a, b in pairs]
        products += [f"sum(c_{a} * c_{b}) AS c_{a}_{b}" for a, b in pairs if "one" not in (a, b)]
        totals = [f"sum(c_{x}) AS c_{x}" for x in columns[:-1]]
        inner = (
            f"SELECT unit, {', '.join(known + centred)}, sum(bad) AS bad FROM (SELECT *, "
            f"{look_up(h)} AS w, {look_up(leverage)} AS lev FROM ({source})) GROUP BY unit"
        )
        result = duckdb.sql(
            f"SELECT count(*) AS n, {', '.join(products + totals)}, sum(bad) FROM ({inner})"
        )
        row = dict(zip(result.columns, result.fetchall()[0], strict=True))
        variance = row["n"] / (row["n"] - 1) * row["c_se1_se1"] / mass**2
    sample = model.sample_by_level_.sum()
    gradient, share = h * residual / mass, model.marginal_
    outside = float((gradient**2 / share).sum() - gradient.sum() ** 2) / sample
    outside *= 1 - sample / (N_USERS * N_ITEMS)
    return float(np.sqrt(variance + outside))


def strata_ours(path: Path, cluster: str | None, engine: str) -> float:
    import duckdb
    import polars as pl

    from unskew import evaluate_frame

    frame = duckdb.read_parquet(str(path)) if engine == "duckdb" else pl.scan_parquet(path)
    result = evaluate_frame(
        frame,
        prediction=["svd", "neural"],
        propensity=fit(path),
        universe=(N_USERS, N_ITEMS),
        cluster=None if cluster is None else "user",
    )
    return result.risk("svd", metric="mse", estimator="snips").std_error


def by_hand(path: Path, cluster: str | None) -> float:
    """All sums that the estimators need, in one SELECT. Returns the SNIPS estimate of an MSE."""
    import duckdb

    deltas = {"mse": ["se1", "se2"], "mae": ["ae1", "ae2"]}
    pairs = [
        (a, b) for x in deltas.values() for i, a in enumerate([*x, "one"]) for b in [*x, "one"][i:]
    ]
    rows = [
        f"sum({h} * {x}) AS t_{h}_{x}"
        for h in ("one", "w")
        for x in (*deltas["mse"], *deltas["mae"], "one")
    ]
    cells = [
        f"sum({h} * {h} * v * {a} * {b}) AS m_{h}_{a}_{b}"
        for h in ("one", "w")
        for a, b in dict.fromkeys(pairs)
    ]
    units = [
        f"sum(t_{h}_{a} * t_{h}_{b}) AS m_{h}_{a}_{b}"
        for h in ("one", "w")
        for a, b in dict.fromkeys(pairs)
    ]
    bad = [
        f"sum(CASE WHEN {x} IS NULL OR NOT isfinite({x}) THEN 1 ELSE 0 END) AS bad_{x}"
        for x in ("rating", "svd", "neural")
    ]
    bad += [
        "sum(CASE WHEN propensity IS NULL OR NOT (propensity > 0 AND propensity <= 1) "
        "THEN 1 ELSE 0 END) AS bad_propensity"
    ]
    source = f"""
        SELECT {cluster or "1"} AS unit, rating, svd, neural, propensity, 1.0::DOUBLE AS one,
               1 / propensity AS w, 1 - propensity AS v,
               (rating - svd) * (rating - svd) AS se1, (rating - neural) * (rating - neural) AS se2,
               abs(rating - svd) AS ae1, abs(rating - neural) AS ae2
        FROM read_parquet('{path}')"""
    if cluster is None:
        query = f"SELECT {', '.join(rows + cells + bad)}, sum(w * w) FROM ({source})"
    else:
        names = [column.split(" AS ")[1] for column in rows + bad]
        sums = [f"sum({name}) AS {name}" for name in names]
        inner = (
            f"SELECT unit, {', '.join(rows + bad)}, sum(w * w) AS ww FROM ({source}) GROUP BY unit"
        )
        query = f"SELECT {', '.join(sums + units)}, sum(ww) FROM ({inner})"
    result = duckdb.sql(query)
    values = dict(zip(result.columns, result.fetchall()[0], strict=True))
    return values["t_w_se1"] / values["t_w_one"]


def ours(path: Path, cluster: str | None, engine: str) -> float:
    import duckdb
    import polars as pl

    from unskew import evaluate_frame

    frame = duckdb.read_parquet(str(path)) if engine == "duckdb" else pl.scan_parquet(path)
    models = ["svd", "neural"]
    unit = None if cluster is None else "user"
    result = evaluate_frame(frame, prediction=models, universe=(N_USERS, N_ITEMS), cluster=unit)
    return result.risk("svd", metric="mse", estimator="snips").estimate


CONTENDERS: dict[str, Callable[[Path, str | None], float]] = {
    "SQL by hand (DuckDB)": by_hand,
    "evaluate_frame, DuckDB": lambda path, cluster: ours(path, cluster, "duckdb"),
    "evaluate_frame, polars lazy": lambda path, cluster: ours(path, cluster, "polars"),
}
STRATA: dict[str, Callable[[Path, str | None], float]] = {
    "strata by hand (DuckDB)": strata_by_hand,
    "evaluate_frame, strata, DuckDB": lambda path, unit: strata_ours(path, unit, "duckdb"),
    "evaluate_frame, strata, polars": lambda path, unit: strata_ours(path, unit, "polars"),
}


def run_one(contender: str, path: Path, cluster: str | None) -> None:
    """Print seconds, peak memory and the estimate, after a warm-up."""
    warnings.simplefilter("ignore")
    run = (CONTENDERS | STRATA)[contender]
    run(path, cluster)
    start = perf_counter()
    value = run(path, cluster)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"seconds": perf_counter() - start, "peak": peak, "value": value}))


def compare(
    n_rows: int, folder: Path, cluster: str | None, repeats: int, *, by_strata: bool
) -> None:
    """The table of one size."""
    contenders = STRATA if by_strata else CONTENDERS
    value_name = "standard error" if by_strata else "estimate"
    path = folder / f"unskew_frames_{n_rows}.parquet"
    try:
        write(path, n_rows)
        size = path.stat().st_size / 1e6
        errors = "cells independent" if cluster is None else "clustered by user"
        print(f"\n{n_rows:,} rows, {size:,.0f} MB of Parquet, {errors}")
        print(f"{'contender':30} {'seconds':>8} {'ratio':>6} {'peak MB':>8}  {value_name}")
        rounds = [
            {contender: _run(contender, path, cluster) for contender in contenders}
            for _ in range(repeats)
        ]
        first = median(of_round[next(iter(contenders))]["seconds"] for of_round in rounds)
        for contender in contenders:
            seconds = median(of_round[contender]["seconds"] for of_round in rounds)
            peak = max(of_round[contender]["peak"] for of_round in rounds)
            value = rounds[0][contender]["value"]
            ratio = seconds / first
            print(f"{contender:30} {seconds:8.2f} {ratio:6.2f} {peak:8.0f}  {value:.12f}")
    finally:
        path.unlink(missing_ok=True)


def _run(contender: str, path: Path, cluster: str | None) -> dict[str, float]:
    command = [
        sys.executable,
        __file__,
        "--one",
        contender,
        "--path",
        str(path),
        *(["--cluster", cluster] if cluster else []),
    ]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, nargs="+", default=[10_000_000, 100_000_000])
    parser.add_argument(
        "--folder",
        type=Path,
        default=Path(tempfile.gettempdir()),
        help="where the Parquet file is put, and deleted",
    )
    parser.add_argument("--cluster", choices=["user_id"], default=None)
    parser.add_argument(
        "--strata", action="store_true", help="propensities of naive Bayes, with their error"
    )
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--one", choices=[*CONTENDERS, *STRATA], help=argparse.SUPPRESS)
    parser.add_argument("--path", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        run_one(arguments.one, arguments.path, arguments.cluster)
        return
    for n_rows in arguments.rows:
        compare(
            n_rows,
            arguments.folder,
            arguments.cluster,
            arguments.repeats,
            by_strata=arguments.strata,
        )


if __name__ == "__main__":
    main()
