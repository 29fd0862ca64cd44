"""
Retrofit a scikit-learn model
=============================

With ``sample_weight=1/P`` any regressor fits all cells, not only the observed ones.

Young users rate more than old ones, and loud films are rated more than quiet ones. Ratings depend
on both, but not linearly. A linear model of the log mostly fits loud films and young users.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import LinearRegression

import unskew

rng = np.random.default_rng(0)
age, loudness = rng.random(600), rng.random(400)
truth = 1 + 4 * np.outer(1 - age**2, 0.3 + 0.7 * loudness**3) + rng.normal(0, 0.3, (600, 400))

# %%
# The propensity is a product of an effect of the user and one of the item, scaled so that 3 % of
# all cells are observed.
selection = unskew.simulation.ByCovariates(np.exp(-2 * age), np.exp(2 * loudness))
observation = unskew.simulation.Observation.of(truth, selection, density=0.03)
log, _ = observation.draw(rng)
print(log)

# %%
# The activity of users and the popularity of items are estimated from the log.
propensity = unskew.propensity.PopularityPropensity("both").fit(log)
weight = unskew.data.inverse_weights(log, propensity)
print(f"Weights from {weight.min():.3g} to {weight.max():.3g}.")


# %%
# Only one argument of the fit changes: ``sample_weight``.
def covariates(user, item):
    return np.column_stack([age[user], loudness[item]])


logged_covariates = covariates(log.user, log.item)
every_user, every_item = np.indices(truth.shape).reshape(2, -1)
models = {}
for name, sample_weight in {"naive": None, "propensity-scored": weight}.items():
    model = LinearRegression().fit(logged_covariates, log.rating, sample_weight=sample_weight)
    models[name] = model.predict(covariates(every_user, every_item)).reshape(truth.shape)

result = unskew.evaluate(
    log, models, propensities=propensity, metrics=["mse"], estimators=["naive", "snips"]
)
print(f"{'MSE of a model fitted':22}{'by the log':>12}{'by SNIPS':>12}{'over all cells':>16}")
for name, prediction in models.items():
    naive = result.risk(name, metric="mse", estimator="naive").estimate
    snips = result.risk(name, metric="mse", estimator="snips").estimate
    print(f"{name:22}{naive:12.3f}{snips:12.3f}{((truth - prediction) ** 2).mean():16.3f}")
print(result.compare("propensity-scored", "naive", metric="mse", estimator="snips"))
_, axes = plt.subplots(figsize=(7, 2.6), layout="constrained")
result.plot(axes)
