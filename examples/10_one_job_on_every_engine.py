"""
One job on pandas, DuckDB and Spark
===================================

The same lines split a log, estimate propensities, train, rank without the items of the training,
and evaluate with intervals that include the error of the estimated propensities. Only the engine
differs: ``LocalEngine`` for data frames and DuckDB, ``SparkEngine`` for a cluster.
"""

import duckdb
import pandas as pd

import unskew
from unskew.engines import LocalEngine
from unskew.propensity import PopularityPropensity

world = unskew.simulate(60, 40, density=0.2, alpha=0.5, random_state=3)
log = pd.DataFrame(
    {"customer": [f"c{code}" for code in world.log.user], "film": world.log.item}
).assign(rating=world.log.rating)
sample = {1.0: 60, 2.0: 50, 3.0: 40, 4.0: 30, 5.0: 20}  # ratings of cells chosen at random
names = {"user": "customer", "item": "film"}
settings = {"n_factors": 2, "l2": 20.0, "tol": 1e-3}


# %%
# On Spark, call it with ``SparkEngine(universe=..., **names)`` and cache the scored rows.
def run_job(table, engine):
    options = {"universe": engine.universe}
    train, test = engine.split_frame(table, share=0.3)
    weights = unskew.NaiveBayesPropensity().fit_frame(train, mcar=sample, **options)
    model = unskew.MatrixFactorization(**settings).fit(train, weights, engine=engine)
    scored = engine.rank_frame(model, engine.predict_frame(model, test), exclude=train)
    return model, scored, engine.recommend_frame(model, k=3, exclude=train)


def evaluate(scored):
    options = {"metrics": ["mse", "mae", "dcg@10", "recall_per_positive@10"], **names}
    options |= {"prediction": "prediction", "position": "position", "relevance_threshold": 4}
    options["universe"] = (60, 40)
    by_rating = unskew.NaiveBayesPropensity().fit_frame(scored, mcar=sample, universe=(60, 40))
    by_item = PopularityPropensity().fit_frame(scored, universe=(60, 40), item="film")
    return [unskew.evaluate_frame(scored, propensity=p, **options) for p in (by_rating, by_item)]


# %%
# Both libraries give the same numbers, and tables of their own kind.
engine = LocalEngine(universe=(60, 40), **names)
model, scored, best = run_job(log, engine)
results = evaluate(scored)
with duckdb.connect() as connection:
    again, rows, table = run_job(connection.from_df(log), engine)
    others = evaluate(rows)
    print(table.limit(3))
print(results[0])
print(f"objectives: {model.objective_:.6f} and {again.objective_:.6f}")
