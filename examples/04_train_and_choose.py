"""
Train a recommender by cross-validation
=======================================

Two models are fitted. MF-IPS is a matrix factorisation weighted by inverse propensities (Eq. 14),
with settings chosen by the estimated risk over *all* cells. MF-Naive is fitted without weights,
with settings chosen by the average over the log.
"""

import matplotlib.pyplot as plt
import numpy as np

import unskew

world = unskew.simulate(300, 400, density=0.08, alpha=0.4, random_state=5)
grid = {"n_factors": [5], "l2": [0.2, 1.0, 5.0, 25.0]}

# %%
# Propensities are scaled to the folds: a cell was observed *and* drawn into the fold.
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
# In a simulation the errors over all cells are known.
users, items = np.repeat(world.log.users, 400), np.tile(world.log.items, 300)
for name, search in {"MF-IPS": weighted, "MF-Naive": naive}.items():
    error = ((search.best_model.predict(users, items) - world.truth.ravel()) ** 2).mean()
    l2, score = search.best_params["l2"], search.best_score
    print(f"{name}, l2 = {l2:g}: estimated MSE {score:.3f}, true MSE {error:.3f}")

# %%
# The three best items of a user, without those in the log.
best = weighted.best_model.recommend([0], k=3)
print(best.to_frame("pandas"))
