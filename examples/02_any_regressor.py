"""
Retrofit a scikit-learn model
=============================

``sample_weight=1/P`` makes any regressor fit all cells, not only those that happen to be logged.

Young users rate more than old ones, and loud films are rated more than quiet ones. Taste depends on both, but not in a straight
line; so a straight line fitted to the log fits what the young say about loud films, and weights tell it about everyone else.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import LinearRegression

import unskew

rng = np.random.default_rng(0)
age, loudness = rng.random(600), rng.random(400)
truth = 1 + 4 * np.outer(1 - age**2, 0.3 + 0.7 * loudness**3) + rng.normal(0, 0.3, (600, 400))

# %%
# Whom and what the log shows more of; their product is the propensity, up to a factor that makes 3 % of all cells seen.
world = unskew.simulation.Observation.of(
    truth, unskew.simulation.ByCovariates(np.exp(-2 * age), np.exp(2 * loudness)), density=0.03
)
log, _ = world.draw(rng)
print(log)

# %%
# The log alone tells how active users and how popular items are.
propensity = unskew.propensity.PopularityPropensity("both", smoothing=1).fit(log)
weight = unskew.data.inverse_weights(log, propensity)
print(f"Weights from {weight.min():.3g} to {weight.max():.3g}.")


# %%
# One line of a fit changes: ``sample_weight``.
def covariates(user, item):
    return np.column_stack([age[user], loudness[item]])


every_user, every_item = np.indices(truth.shape).reshape(2, -1)
models = {}
for name, sample_weight in {"naive": None, "propensity-scored": weight}.items():
    model = LinearRegression().fit(
        covariates(log.user, log.item), log.rating, sample_weight=sample_weight
    )
    models[name] = model.predict(covariates(every_user, every_item)).reshape(truth.shape)

result = unskew.evaluate(
    log, models, propensities=propensity, metrics=["mse"], estimators=["naive", "snips"]
)
print(f"{'MSE of a model fitted':22}{'by the log':>12}{'by SNIPS':>12}{'over all cells':>16}")
for name, predicted in models.items():
    naive, snips = (
        result.risk(name, metric="mse", estimator=estimator).estimate
        for estimator in ("naive", "snips")
    )
    print(f"{name:22}{naive:12.3f}{snips:12.3f}{((truth - predicted) ** 2).mean():16.3f}")
print(result.compare("propensity-scored", "naive", metric="mse", estimator="snips"))
_, axes = plt.subplots(figsize=(7, 2.6), layout="constrained")
result.plot(axes)
