"""
Learn with imputed ratings
==========================

Doubly robust learning imputes every cell and corrects the imputation by the log. How much that is worth depends on the log: here
it is drawn at three densities, and three learners are fitted to each, their penalties chosen by cross-validation.
"""

import matplotlib.pyplot as plt
import numpy as np

import unskew

learners = {
    "MF-IPS": unskew.MatrixFactorization(5),
    "MF-IPS, no offsets": unskew.MatrixFactorization(5, offsets="none"),
    "DR-JL": unskew.models.DoublyRobustFactorization(5, weighting="dr-jl"),
}
densities = (0.04, 0.08, 0.16)
everyone, everything = np.repeat(np.arange(200), 300), np.tile(np.arange(300), 200)

# %%
# "Promised" is IPS on the folds, which needs no truth; "true" is the error over all cells, which only a simulation knows.
true = {name: [] for name in learners}
for density in densities:
    world = unskew.simulate(200, 300, density=density, alpha=0.5, random_state=2)
    print(f"{len(world.log):,} ratings")
    for name, model in learners.items():
        found = unskew.cross_validate(
            model, world.log, propensities=world.propensities, grid={"l2": [0.2, 1.0, 5.0]}
        )
        error = ((found.best_model.predict(everyone, everything) - world.truth.ravel()) ** 2).mean()
        true[name].append(error)
        print(
            f"    {name:20} l2 = {found.best_params['l2']:3g}  promised {found.best_score:.3f}  true {error:.3f}"
        )

# %%
# The imputation has no offsets and shrinks towards 0, and ratings that nobody logged are low, so that this can help by itself.
# At 8 % it is all there is to gain: there, the weighted factorisation without offsets does as well.
_, axes = plt.subplots(figsize=(6, 3.2), layout="constrained")
for name, errors in true.items():
    axes.plot(densities, errors, marker="o", label=name)
axes.set(xscale="log", xlabel="share of cells in the log", ylabel="MSE over all cells")
axes.set_xticks(densities, [f"{density:.0%}" for density in densities])
axes.minorticks_off()
axes.legend()
