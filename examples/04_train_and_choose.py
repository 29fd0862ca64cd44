"""
Train a recommender by cross-validation
=======================================

Matrix factorisation weighted by inverse propensities (MF-IPS, Eq. 14), its settings chosen by the risk over *all* cells, beside
the usual model of the log, its settings chosen by the usual average.
"""

import matplotlib.pyplot as plt
import numpy as np

import unskew

world = unskew.simulate(300, 400, density=0.08, alpha=0.4, random_state=5)
grid = {"n_factors": [5], "l2": [0.2, 1.0, 5.0, 25.0]}

# %%
# Folds thin the log, so propensities are scaled to each part: a cell had to be observed *and* fall into it.
weighted = unskew.cross_validate(
    unskew.MatrixFactorization(), world.log, propensities=world.propensities, grid=grid
)
naive = unskew.cross_validate(unskew.MatrixFactorization(), world.log, grid=grid, estimator="naive")
for row in weighted.table:
    print(f"l2 {row['l2']:4g}: IPS of the MSE {row['score']:.3f} ± {row['std']:.3f}")

_, axes = plt.subplots(figsize=(5, 3), layout="constrained")
l2, score, std = zip(
    *sorted((row["l2"], row["score"], row["std"]) for row in weighted.table), strict=True
)
axes.set(xscale="log", xlabel="l2", ylabel="MSE over all cells, by IPS")
axes.errorbar(l2, score, std, marker="o", capsize=3)

# %%
# Only a simulation knows what both are worth on the cells that nobody rated.
everyone, everything = np.repeat(world.log.users, 400), np.tile(world.log.items, 300)
for name, found in {"MF-IPS": weighted, "MF-Naive": naive}.items():
    error = ((found.best_model.predict(everyone, everything) - world.truth.ravel()) ** 2).mean()
    print(
        f"{name}, l2 = {found.best_params['l2']:g}: promised {found.best_score:.3f}, true MSE {error:.3f}"
    )

# %%
# The three best items of a user, those in the log left out.
best = weighted.best_model.recommend([0], k=3)
print(best.to_frame("pandas"))
