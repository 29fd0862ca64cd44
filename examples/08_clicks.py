"""
Learn from clicks
=================

A log of clicks does not say who saw an item and passed: silence is a no, or nobody looked. Items that are shown to many get many
clicks, so that counting clicks learns what was shown. Dividing each click by the chance that its item was seen puts that right.
"""

import matplotlib.pyplot as plt
import numpy as np

import unskew

rng = np.random.default_rng(1)
shown = 0.02 + rng.beta(0.6, 2, 300)
world = unskew.simulate(
    400,
    300,
    density=0.15,
    observation=unskew.simulation.ByCovariates(np.ones(400), shown),
    marginals=(0.3, 0.2, 0.2, 0.2, 0.1),
    random_state=1,
)

# %%
# Of what is shown, people click what they would give 4 stars or more. The log has the clicks alone.
clicked = world.log.rating >= 4
clicks, seen = world.log.take(clicked), world.propensities.take(clicked)
print(f"{len(world.log):,} cells were shown, {len(clicks):,} clicked.")
print(f"Chances to be seen: {seen.values.min():.2f} to {seen.values.max():.2f}.")

# %%
# The test is 5,000 random cells, whoever saw them. The penalties were picked by hand on this truth: a sketch, no race. Mind the
# second line: chances that are known make a mere count as good as any factorisation here.
user, item = np.divmod(rng.choice(400 * 300, 5000, replace=False), 300)
test = unskew.Ratings.from_arrays(user, item, world.truth[user, item])
models = {
    "popularity": unskew.models.Popularity().fit(clicks),
    "popularity, clicks / chance": unskew.models.Popularity().fit(clicks, seen),
    "WeightedFactorization": unskew.models.WeightedFactorization(5, 10.0, alpha=5.0).fit(clicks),
    "ExposureFactorization": unskew.models.ExposureFactorization(5, 1.0).fit(clicks),
    "RelevanceFactorization": unskew.models.RelevanceFactorization(
        5, 5.0, offsets="regularized"
    ).fit(clicks, seen),
}
found = {
    name: unskew.evaluation.ranking_on_test(test, model, relevance_threshold=4, k=5)
    for name, model in models.items()
}
for name, ranking in found.items():
    print(
        f"{name:28} AUC {ranking.auc:.3f}  within users {ranking.user_auc:.3f}  NDCG@5 {ranking.ndcg:.3f}"
    )

# %%
_, axes = plt.subplots(figsize=(7, 2.6), layout="constrained")
axes.barh(list(found), [ranking.user_auc for ranking in found.values()])
axes.set(xlim=(0.5, 1), xlabel="AUC within users, on random cells")
axes.invert_yaxis()
