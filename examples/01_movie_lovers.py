"""
Compare two models
==================

Why an average over a log prefers the wrong model, and how to put it right.

Horror lovers give horror films 5 stars and romances 1; romance lovers the other way round; everyone gives dramas 3. People mostly
rate what they like. Model A is right but a little shy about favourites. Model B thinks that everyone loves everything.
"""

import matplotlib.pyplot as plt
import numpy as np

import unskew

loves = np.repeat(["horror", "romance"], 200)
genre = np.repeat(["horror", "romance", "drama"], 50)
truth = np.where(genre == "drama", 3, np.where(genre == loves[:, None], 5, 1))

# %%
# How likely each rating is to end up in the log: 10 % of favourites, 5 % of dramas, 1 % of what people dislike.
propensity = np.select([truth == 5, truth == 3], [0.10, 0.05], 0.01)
observed = np.random.default_rng(0).random(truth.shape) < propensity
log = unskew.Ratings.from_dense(np.where(observed, truth, 0))
print(log)

# %%
# The naive average sees few dislikes, and so hardly notices what B gets wrong.
models = {
    "A: shy": np.where(truth == 5, 4, truth),
    "B: flatterer": np.where(truth == 1, 5, truth),
}
result = unskew.evaluate(
    log, models, propensities=propensity, metrics=["mae"], estimators=["naive", "ips", "snips"]
)
print(result)

# %%
# Both models are judged on the same cells, so that their difference has an interval of its own.
for estimator in ("naive", "ips", "snips"):
    print(result.compare("A: shy", "B: flatterer", metric="mae", estimator=estimator))
for name, predicted in models.items():
    print(
        f"The truth, which only a simulation knows: MAE of {name} is {np.abs(truth - predicted).mean():.3f}."
    )

# %%
# Estimates with their 95 % intervals.
_, axes = plt.subplots(figsize=(7, 2.8), layout="constrained")
result.plot(axes)
