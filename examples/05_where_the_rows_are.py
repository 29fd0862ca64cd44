"""
Judge where the rows are: DuckDB and polars
===========================================

``evaluate_frame`` runs one query in the engine that holds the log, and only sums come back. So the log may be larger than memory,
and the numbers are the same everywhere.
"""

import tempfile
from pathlib import Path

import duckdb
import matplotlib.pyplot as plt
import numpy as np
import polars as pl

import unskew

world = unskew.simulate(300, 500, random_state=0)
rng = np.random.default_rng(0)
rating = world.log.rating
columns = {
    "user_id": world.log.user,
    "item_id": world.log.item,
    "rating": rating,
    "propensity": world.propensities.values,
    "kind": np.where(rating <= 2, rating + 2, rating),  # far too kind to what people dislike
    "fair": rating + rng.normal(0, 0.9, len(rating)),
}

# %%
# A Parquet file, read lazily by polars and by a DuckDB relation.
asked = {
    "prediction": ["kind", "fair"],
    "universe": (300, 500),
    "metrics": ["mae"],
    "cluster": "user",
}
with tempfile.TemporaryDirectory() as folder:
    path = Path(folder, "log.parquet")
    pl.DataFrame(columns).write_parquet(path)
    by_polars = unskew.evaluate_frame(pl.scan_parquet(path), **asked)
    with duckdb.connect() as connection:
        by_duckdb = unskew.evaluate_frame(connection.read_parquet(str(path)), **asked)
print(by_polars)

# %%
# The same sums, so the same answer, intervals and comparisons included.
for name, result in {"polars": by_polars, "DuckDB": by_duckdb}.items():
    print(f"{name}: {result.compare('kind', 'fair', metric='mae', estimator='snips')}")
_, axes = plt.subplots(figsize=(7, 2.6), layout="constrained")
by_duckdb.plot(axes)
