"""
Write a report
==============

``to_html`` writes a result as one self-contained file. The conclusion comes first.
"""

import json
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import unskew

world = unskew.simulate(300, 500, random_state=0)
noise = np.random.default_rng(0).standard_normal(world.truth.shape)
models = {
    "old": world.truth + 2 * (world.truth <= 2) + 0.4 * noise,
    "new": world.truth + 0.9 * noise,
}
result = unskew.evaluate(world.log, models, propensities=world.propensities, metrics=["mae"])

# %%
# The page of an evaluation: which model is better, estimates with intervals, observed and corrected
# ratings, weights, and how the numbers were computed.
with tempfile.TemporaryDirectory() as folder:
    page = result.to_html(Path(folder, "report.html"))
    print(f"{page.name}: {page.stat().st_size / 1000:.0f} kB")

# %%
# ``unskew report result.json -o report.html`` makes the same page on the command line. The JSON has
# every number of the page.
record = json.loads(result.to_json())
for difference in record["differences"]:
    print(f"by {difference['estimator']}: {difference['better']} is better")

# %%
# How wrong would the propensities have to be to reverse the order?
robust = unskew.sensitivity(result, odds_error=[1.0, 1.5, 2.0])
print(robust.compare("old", "new", metric="mae", estimator="snips"))
_, axes = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
robust.plot(axes, estimator="snips")
