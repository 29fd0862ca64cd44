"""Run the example of the whole job on a Spark master, or on Spark Connect for ``connect``.

Prints as JSON how far the numbers are from those of pandas, which the example computes too.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
import warnings
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

import unskew
from unskew.engines import SparkEngine

EXAMPLE = Path(__file__).parents[2] / "examples" / "10_one_job_on_every_engine.py"
OPTIONS = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.log.level": "OFF",
    "spark.sql.shuffle.partitions": "2",
    "spark.executor.memory": "1024m",
}
SAMPLE = {1.0: 60, 2.0: 50, 3.0: 40, 4.0: 30, 5.0: 20}
NUMBERS = ["estimate", "std_error", "ci_low", "ci_high"]


def open_session(master: str) -> Any:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder
    opened = builder.remote("local[2]") if master == "connect" else builder.master(master)
    for name, value in OPTIONS.items():
        opened = opened.config(name, value)
    return opened.getOrCreate()


def largest_difference(results: Any, expected: Any) -> float:
    """The largest difference of a number, relative to it."""
    pairs = [
        [np.asarray(each.to_frame("pandas")[NUMBERS]) for each in pair]
        for pair in zip(results, expected, strict=True)
    ]
    return max(
        float(np.max(np.abs(one / other - 1), where=is_compared(one, other), initial=0))
        for one, other in pairs
    )


def is_compared(one: Any, other: Any) -> Any:
    """All numbers but 0, and NaN in both: the limits of an estimate without an interval."""
    return (other != 0) & ~(np.isnan(one) & np.isnan(other))


def judge_lists(frame: Any) -> Any:
    """Metrics of whole lists of the log, where it is."""
    model = unskew.NaiveBayesPropensity().fit_frame(frame, mcar=SAMPLE, universe=(60, 40))
    return unskew.evaluate_frame(
        frame,
        user="customer",
        item="film",
        prediction=["mf", "dr"],
        position=["mf_place", "dr_place"],
        propensity=model,
        universe=(60, 40),
        metrics=["ndcg@10", "map", "mrr@10", "hit_rate@10", "auc", "pooled_auc"],
        relevance_threshold=4,
    )


def diagnose(frame: Any) -> list[float]:
    """Numbers of a diagnosis of the whole log, where it is."""
    names = {"user": "customer", "item": "film"}
    model = unskew.NaiveBayesPropensity().fit_frame(frame, mcar=SAMPLE, universe=(60, 40))
    diagnosis = unskew.diagnose_frame(frame, {"nb": model}, **names, universe=(60, 40))
    weights = diagnosis["nb"].weights
    return [*weights.quantiles, weights.summary.effective_sample_size, diagnosis.coverage.n_users]


def study_users(rows: Any) -> list[float]:
    """Numbers of metrics and of a diagnosis that need the log, here of some users, in memory."""
    log = unskew.Ratings.from_frame(rows, user="customer", item="film", universe=(30, 40))
    propensities = unskew.NaiveBayesPropensity().fit(log, mcar=SAMPLE)
    result = unskew.evaluate(
        log,
        {"mf": rows, "dr": rows},
        position={"mf": "mf_place", "dr": "dr_place"},
        propensities=propensities,
        metrics=["ndcg@10", "map@10", "mrr@10", "hit_rate@10", "auc"],
        relevance_threshold=4,
    )
    weights = unskew.diagnose(log, {"nb": propensities})["nb"].weights.summary
    return [*result.to_columns()["estimate"], weights.effective_sample_size]


def main() -> None:
    warnings.simplefilter("ignore")
    example = runpy.run_path(str(EXAMPLE))
    session = open_session(sys.argv[1])
    log, same = (
        session.createDataFrame(pa.Table.from_pandas(example[name], preserve_index=False))
        for name in ("log", "scored")
    )
    engine = SparkEngine(
        universe=(60, 40), collect_users=False, n_blocks=2, user="customer", item="film"
    )
    models, scored, best = example["run_job"](log, engine)
    evaluate = example["evaluate"]
    recommended = best.toArrow().to_pandas().sort_values(["customer", "position"])
    expected = example["best"].sort_values(["customer", "position"])
    results = evaluate(scored.cache())
    lists = [[judge_lists(frame)] for frame in (scored, example["scored"])]
    diagnoses = [diagnose(frame) for frame in (scored, example["scored"])]
    with TemporaryDirectory() as folder:
        page = results[0].to_html(Path(folder, "report.html")).read_text()
    drawn = [
        each.split_frame(frame, share=0.5, by="user")[1]
        for each, frame in ((engine, scored), (example["engine"], example["scored"]))
    ]
    of_users, expected_of_users = study_users(drawn[0].toArrow().to_pandas()), study_users(drawn[1])
    pairs = zip(models, example["models"], strict=True)
    summary = {
        "session": type(session).__module__,
        "evaluation": largest_difference(results, example["results"]),
        "same_predictions": largest_difference(evaluate(same), example["results"]),
        "DuckDB": largest_difference(example["others"], example["results"]),
        "lists": largest_difference(*lists),
        "diagnosis": float(np.max(np.abs(np.divide(*diagnoses) - 1))),
        "of_users": float(np.max(np.abs(np.divide(of_users, expected_of_users) - 1))),
        "objective": max(abs(there.objective_ / here.objective_ - 1) for there, here in pairs),
        "same_lists": recommended["film"].tolist() == expected["film"].tolist(),
        "n_recommended": len(recommended),
        "n_users_on_driver": max(len(model.users_) for model in models),
        "has_report": "<html" in page,
    }
    print(json.dumps(summary))
    session.stop()


if __name__ == "__main__":
    main()
