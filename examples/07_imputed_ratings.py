"""
Learn with imputed ratings
==========================

Doubly robust learning imputes every cell and corrects the imputation by the log. The gain depends
on the log. Here three models are fitted to logs of three densities, with their default settings,
which choose the penalties from the log.
"""

import matplotlib.pyplot as plt
import numpy as np

import unskew

learners = {
    "MF-IPS": unskew.MatrixFactorization(5),
    "MF-IPS, no offsets": unskew.MatrixFactorization(5, offsets="none"),
    "DR-JL": unskew.models.DoublyRobustFactorization(
        5, weight_transform=unskew.estimators.Clip(10)
    ),
}
densities = (0.04, 0.08, 0.16)
users, items = np.repeat(np.arange(200), 300), np.tile(np.arange(300), 200)

# %%
# The MSE over all cells, which only a simulation knows.
true_errors = {name: [] for name in learners}
for density in densities:
    world = unskew.simulate(200, 300, density=density, alpha=0.5, random_state=2)
    print(f"{len(world.log):,} ratings")
    for name, model in learners.items():
        model.fit(world.log, world.propensities)
        error = ((model.predict(users, items) - world.truth.ravel()) ** 2).mean()
        true_errors[name].append(error)
        print(f"    {name:20} MSE over all cells {error:.3f}")

# %%
# A model without offsets shrinks towards 0. Unobserved ratings are low here, so this can help.
_, axes = plt.subplots(figsize=(6, 3.2), layout="constrained")
for name, errors in true_errors.items():
    axes.plot(densities, errors, marker="o", label=name)
axes.set(xscale="log", xlabel="share of cells in the log", ylabel="MSE over all cells")
axes.set_xticks(densities, [f"{density:.0%}" for density in densities])
axes.minorticks_off()
axes.legend()
