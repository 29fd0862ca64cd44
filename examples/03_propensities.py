"""
Estimate and diagnose propensities
==================================

Nobody tells how likely a rating was to be logged. Here it depends on the rating (people rate what they like), and two models try
to find out: naive Bayes, which looks at ratings and needs a few of random cells, and popularity, which looks at counts alone.
"""

import matplotlib.pyplot as plt
import numpy as np

import unskew

world = unskew.simulate(400, 600, random_state=3)
print(world.log)

# %%
# Ask for 500 ratings of random cells; here the truth answers.
sample = np.random.default_rng(0).choice(world.truth.ravel(), 500)
propensities = {
    "naive Bayes": unskew.NaiveBayesPropensity().fit(world.log, mcar=sample),
    "popularity": unskew.propensity.PopularityPropensity("item", smoothing=1).fit(world.log),
}

# %%
# Popularity is calibrated, and its weights nearly add up to the universe: nothing in the log itself gives away that it misses
# what matters, the rating. Only the truth does (the last two lines), or knowing how people come to rate.
found = unskew.diagnose(world.log, propensities, true=world.propensities)
print(found)

# %%
# What it comes to: the mean absolute error of "everything is worth 3 stars".
threes = np.full(len(world.log), 3.0)
print(f"over all cells {np.abs(world.truth - 3).mean():.3f}")
for name, model in (propensities | {"known": world.propensities}).items():
    result = unskew.evaluate(
        world.log, {"threes": threes}, propensities=model, metrics=["mae"], estimators=["snips"]
    )
    print(
        f"by SNIPS with {name} propensities {result.risk('threes', metric='mae', estimator='snips').estimate:.3f}"
    )

# %%
_, axes = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
found.plot(axes, panels=["weights", "calibration"])
