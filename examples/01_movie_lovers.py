"""
Compare two models
==================

Why an average over a log prefers the wrong model, and how to correct it.

Horror lovers give horror films 5 stars and romances 1. Romance lovers do the opposite. Everyone
gives dramas 3. People mostly rate what they like. Model A is right, except that it predicts 4 for
favourites. Model B predicts 5 for everything but dramas.
"""

import matplotlib.pyplot as plt
import numpy as np

import unskew

loves = np.repeat(["horror", "romance"], 200)
genre = np.repeat(["horror", "romance", "drama"], 50)
truth = np.where(genre == "drama", 3, np.where(genre == loves[:, None], 5, 1))

# %%
# The probability of each rating to be in the log: 10 % for favourites, 5 % for dramas, 1 % for
# films that people dislike.
propensity = np.select([truth == 5, truth == 3], [0.10, 0.05], 0.01)
observed = np.random.default_rng(0).random(truth.shape) < propensity
log = unskew.Ratings.from_dense(np.where(observed, truth, 0))
print(log)

# %%
# The log has few low ratings, so the naive average hardly includes the errors of B.
models = {
    "A": np.where(truth == 5, 4, truth),
    "B": np.where(truth == 1, 5, truth),
}
result = unskew.evaluate(
    log, models, propensities=propensity, metrics=["mae"], estimators=["naive", "ips", "snips"]
)
print(result)

# %%
# Both models are evaluated on the same cells, so their difference has its own interval.
for estimator in ("naive", "ips", "snips"):
    print(result.compare("A", "B", metric="mae", estimator=estimator))
for name, prediction in models.items():
    print(f"The true MAE of {name} is {np.abs(truth - prediction).mean():.3f}.")

# %%
# Estimates with their 95 % intervals.
_, axes = plt.subplots(figsize=(7, 2.8), layout="constrained")
result.plot(axes)
