"""The page of learners compared on a test."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from unskew.report.charts.axes import Axis
from unskew.report.charts.chart import Chart, chart
from unskew.report.charts.forest import Block, Forest, Row, foremost
from unskew.report.charts.looks import CORRECTED
from unskew.report.page import Page, Record, Section, Table, Tile, table
from unskew.report.wording import interval, metric_in_words, metric_name, number, sentence
from unskew.tables import count_noun

Rows = Sequence[Mapping[str, Any]]
HIGHER_IS_BETTER = ("auc", "user_auc", "ndcg", "accuracy", "recall", "precision")
PAIRED = "Each learner minus the reference, paired by user of the test. An interval that leaves out zero tells the two apart."
KNOWS_TEST = "best constant"


def learners_page(record: Record) -> Page:
    """Which learner is best, and by how much, on every test and by every metric."""
    first = record["rows"][0]
    rows = _of(record["rows"], first["test"], first["metric"])
    fair = [row for row in rows if row["learner"] != KNOWS_TEST]
    best = (max if _is_higher_better(first["metric"]) else min)(fair, key=lambda row: row["mean"])
    name = metric_name(first["metric"])
    return Page(
        "Learners compared",
        (
            (f"Of {count_noun(len(fair), 'learner')}, ", False),
            (
                f"{best['learner']} has the best {name}: {interval(best['mean'], best['ci_low'], best['ci_high'])}.",
                True,
            ),
        ),
        f"{sentence(metric_in_words(first['metric'])).removesuffix('.')}, on {first['test']}, "
        f"mean over {count_noun(record['seeds'], 'seed')}. Brackets are {record['level']:.0%} intervals.",
        (
            Tile(number(best["mean"], 3), f"{name} of the best", best["learner"]),
            *(
                Tile(number(row["mean"], 3), f"{name} of the reference", row["learner"])
                for row in _reference(record, rows)
            ),
            Tile(str(record["seeds"]), "seeds"),
            Tile(str(len(fair)), "learners"),
        ),
        tuple(_warnings(record)),
        tuple(_sections(record)),
        (
            ("reference", record["reference"]),
            ("intervals", f"{record['level']:.0%}, users of the test being the sample"),
            ("p-values", "corrected for the number of learners by Holm's method"),
            ("computed by", f"unskew {record['version']}"),
        ),
    )


def _is_higher_better(metric: str) -> bool:
    return metric.partition("@")[0] in HIGHER_IS_BETTER


def _of(rows: Rows, test: str, metric: str) -> list[Mapping[str, Any]]:
    return [row for row in rows if (row["test"], row["metric"]) == (test, metric)]


def _reference(record: Record, rows: Rows) -> list[Mapping[str, Any]]:
    return [row for row in rows if row["learner"] == record["reference"]]


def _warnings(record: Record) -> Iterator[str]:
    for test, n_seen in record["n_seen"].items():
        if n_seen:
            yield f"{n_seen:,} cells of {test} are in the training log, too: errors there are too small."


def _sections(record: Record) -> Iterator[Section]:
    for test, metric in dict.fromkeys((row["test"], row["metric"]) for row in record["rows"]):
        rows = sorted(
            _of(record["rows"], test, metric),
            key=lambda row: row["mean"],
            reverse=_is_higher_better(metric),
        )
        yield Section(
            f"{metric_name(metric)} on {test}",
            PAIRED,
            tuple(_charts(record, rows, metric)),
            (_table(rows, metric),),
        )


def _charts(record: Record, rows: Rows, metric: str) -> Iterator[Chart]:
    name = metric_name(metric)
    means = tuple(
        _row(row, row["mean"], row["ci_low"], row["ci_high"], signed=False) for row in rows
    )
    shown, left_out = foremost(means, range(len(means)), rows_each=1, what="best learners")
    yield chart(
        f"{name} of every learner",
        Forest([Block("", tuple(shown))], Axis(name)).draw,
        caption=left_out,
    )
    apart = tuple(
        _row(row, row["difference"], row["difference_low"], row["difference_high"], signed=True)
        for row in rows
        if row["difference"] is not None
    )
    if apart:
        sides = ("reference", "learner") if _is_higher_better(metric) else ("learner", "reference")
        shown, left_out = foremost(apart, range(len(apart)), rows_each=1, what="best learners")
        forest = Forest([Block("", tuple(shown))], Axis(f"difference of {name}"), 0.0, sides)
        yield chart(f"Learner minus {record['reference']}", forest.draw, caption=left_out)


def _row(row: Mapping[str, Any], value: float, low: float, high: float, *, signed: bool) -> Row:
    shown = interval(value, low, high, signed=signed)
    return Row(row["learner"], value, CORRECTED, f"{row['learner']}: {shown}", low, high, shown)


def _table(rows: Rows, metric: str) -> Table:
    heads = {
        "learner": "learner",
        "mean": metric_name(metric),
        "ci_low": "low",
        "ci_high": "high",
        "difference": "difference",
        "p_holm": "p (Holm)",
        "cross_validated": "cross-validated",
        "seconds": "seconds",
        "chosen": "chosen",
    }
    return table(
        "All learners, the best first",
        {head: [row[name] for row in rows] for name, head in heads.items()},
    )
