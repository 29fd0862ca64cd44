"""
Estimate and diagnose propensities
==================================

Usually the propensities are not known. Here they depend on the rating, because people rate what
they like. Two models estimate them: naive Bayes, which uses ratings and needs some ratings of
random cells, and popularity, which uses only the number of ratings.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np

import unskew

world = unskew.simulate(400, 600, random_state=3)
print(world.log)

# %%
# The random sample: 500 ratings of random cells. Here they are taken from the truth.
user, item = np.divmod(np.random.default_rng(0).choice(world.truth.size, 500, replace=False), 600)
sample = unskew.Ratings.from_arrays(user, item, world.truth[user, item])
propensities = {
    "naive Bayes": unskew.NaiveBayesPropensity().fit(world.log, mcar=sample.rating),
    "popularity": unskew.propensity.PopularityPropensity("item").fit(world.log),
}

# %%
# Popularity is calibrated, and its weights add up to the universe. Only the random sample shows
# that it ignores the rating: it fails the test of the mean rating. The result lists the warnings.
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    diagnosis = unskew.diagnose(world.log, propensities, true=world.propensities, mcar=sample)
print(diagnosis)

# %%
# The effect on an estimate: the mean absolute error of a model that always predicts 3.
threes = np.full(len(world.log), 3.0)
print(f"over all cells {np.abs(world.truth - 3).mean():.3f}")
for name, model in (propensities | {"known": world.propensities}).items():
    result = unskew.evaluate(
        world.log, {"threes": threes}, propensities=model, metrics=["mae"], estimators=["snips"]
    )
    risk = result.risk("threes", metric="mae", estimator="snips")
    print(f"by SNIPS with {name} propensities {risk.estimate:.3f}")

# %%
_, axes = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
diagnosis.plot(axes, panels=["weights", "calibration"])
