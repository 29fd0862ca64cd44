"""
Evaluate in DuckDB and polars
=============================

``evaluate_frame`` runs one query where the rows are, and returns only sums. So the log may be
larger than memory. The numbers do not depend on the library of the frame.
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
    "optimist": np.where(rating <= 2, rating + 2, rating),  # far too high for low ratings
    "realist": rating + rng.normal(0, 0.9, len(rating)),
}

# %%
# A Parquet file, read lazily by polars and by a DuckDB relation.
arguments = {
    "prediction": ["optimist", "realist"],
    "universe": (300, 500),
    "metrics": ["mae"],
    "cluster": "user",
}
with tempfile.TemporaryDirectory() as folder:
    path = Path(folder, "log.parquet")
    pl.DataFrame(columns).write_parquet(path)
    by_polars = unskew.evaluate_frame(pl.scan_parquet(path), **arguments)
    with duckdb.connect() as connection:
        by_duckdb = unskew.evaluate_frame(connection.read_parquet(str(path)), **arguments)
print(by_polars)

# %%
# Both compute the same sums, so estimates, intervals and comparisons are the same.
for name, result in {"polars": by_polars, "DuckDB": by_duckdb}.items():
    print(f"{name}: {result.compare('optimist', 'realist', metric='mae', estimator='snips')}")
_, axes = plt.subplots(figsize=(7, 2.6), layout="constrained")
by_duckdb.plot(axes)
