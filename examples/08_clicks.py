"""
Learn from clicks
=================

In a log of clicks, an unobserved cell means that the item was not shown, or that it was shown and
not clicked. Items that are shown often get many clicks, so counting clicks learns what was shown.
Dividing each click by the probability that its item was seen corrects that.
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
# People click shown items that they would give 4 stars or more. The log has only the clicks.
clicked = world.log.rating >= 4
clicks, seen = world.log.take(clicked), world.propensities.take(clicked)
print(f"{len(world.log):,} cells were shown, {len(clicks):,} clicked.")
print(f"Probabilities to be seen: {seen.values.min():.2f} to {seen.values.max():.2f}.")

# %%
# The test is 5,000 random cells, shown or not; those of the log leave it. The penalties were chosen
# by hand with the truth in view, so this is not a ranking of models. With known probabilities a
# plain count is as good as any factorisation here.
user, item = np.divmod(rng.choice(400 * 300, 5000, replace=False), 300)
test = unskew.Ratings.from_arrays(user, item, world.truth[user, item])
relevance = unskew.models.RelevanceFactorization(5, 5.0, offsets="regularized")
models = {
    "popularity": unskew.models.Popularity().fit(clicks),
    "popularity, weighted clicks": unskew.models.Popularity().fit(clicks, seen),
    "WeightedFactorization": unskew.models.WeightedFactorization(5, 10.0, alpha=5.0).fit(clicks),
    "ExposureFactorization": unskew.models.ExposureFactorization(5, 1.0).fit(clicks),
    "RelevanceFactorization": relevance.fit(clicks, seen),
}
options = {"metrics": ["pooled_auc", "auc", "ndcg@5"], "relevance_threshold": 4}
result = unskew.evaluate_random_test(test, models, exclude=clicks, **options)
print(result)

# %%
_, axes = plt.subplots(figsize=(7, 2.6), layout="constrained")
within_users = [risk.estimate for risk in result if risk.metric == "logged_user_auc"]
axes.barh(list(models), within_users)
axes.set(xlim=(0.5, 1), xlabel="AUC within users, on random cells")
axes.invert_yaxis()
