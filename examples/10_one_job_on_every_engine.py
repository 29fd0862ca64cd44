"""
One job on pandas, DuckDB and Spark
===================================

The same lines split a log, estimate propensities, train by MF-IPS and doubly robust learning, rank
without the items of the training, and evaluate with intervals. Only the engine differs:
``LocalEngine`` for data frames and DuckDB, ``SparkEngine`` for a cluster.
"""

import duckdb
import pandas as pd

import unskew

world = unskew.simulate(60, 40, density=0.2, alpha=0.5, random_state=3)
log = pd.DataFrame({"customer": [f"c{code}" for code in world.log.user], "film": world.log.item})
log["rating"] = world.log.rating
log["segment"] = ["new" if code < 20 else "old" for code in world.log.user]
sample = {1.0: 60, 2.0: 50, 3.0: 40, 4.0: 30, 5.0: 20}  # ratings of cells chosen at random
names, size = {"user": "customer", "item": "film"}, {"universe": (60, 40)}
features = {"user_features": [[0.0], [1.0]], "item_features": [[i % 2] for i in range(40)]}
groups = {"items": range(40), "group": "segment", "group_sizes": {"new": 20, "old": 40}}


# %%
# On Spark, call it with ``SparkEngine(universe=..., **names)`` and cache the scored rows.
def run_job(table, engine):
    train, scored = engine.split_frame(table, share=0.3)
    weights = unskew.NaiveBayesPropensity().fit_frame(train, mcar=sample, **size)
    mf = unskew.MatrixFactorization(2, 20.0, tol=1e-3)
    dr = unskew.models.DoublyRobustFactorization(2, 5.0, imputer=mf, tol=1e-3)
    for name, model in {"mf": mf, "dr": dr}.items():
        model.fit(train, weights, engine=engine)
        scored = engine.predict_frame(model, scored, name=name)
        scored = engine.rank_frame(model, scored, exclude=train, name=f"{name}_place")
    return (mf, dr), scored, engine.recommend_frame(dr, k=3, exclude=train)


def evaluate(scored):
    options = {"metrics": ["mse", "dcg@10", "recall_per_positive@10"], "relevance_threshold": 4}
    options |= {"prediction": ["mf", "dr"], "position": ["mf_place", "dr_place"], **names, **size}
    nb = unskew.NaiveBayesPropensity().fit_frame(scored, mcar=sample, **size)
    popularity = unskew.propensity.PopularityPropensity().fit_frame(scored, item="film", **size)
    logistic = unskew.LogisticPropensity(**features, ridge=2.0)
    logistic.fit_frame(scored, item="film", **groups, **size)
    return [
        unskew.evaluate_frame(scored, propensity=model, propensities_known=known, **options)
        for model, known in ((nb, False), (popularity, False), (logistic, True))
    ]


# %%
# Both libraries give the same numbers, and tables of their own kind.
engine = unskew.engines.LocalEngine(universe=(60, 40), **names)
models, scored, best = run_job(log, engine)
results = evaluate(scored)
again, rows, table = run_job(duckdb.from_df(log), engine)
others = evaluate(rows)
print(table.limit(3), results[0], sep="\n")
