"""The page of a diagnosis: can these propensities be trusted?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from unskew.report.charts.axes import Axis, percent
from unskew.report.charts.chart import Chart, Key, chart, key, line_key
from unskew.report.charts.curves import Curve, Curves, Point
from unskew.report.charts.forest import Block, Forest, Row
from unskew.report.charts.looks import SEEN, Look, look_of
from unskew.report.page import Page, Record, Section, Table, Tile, table
from unskew.report.pages.verdict import Headline
from unskew.report.wording import brief, count, number, of_universe, sentence, share
from unskew.tables import count_noun

SMALL = 0.1
MOST_COVARIATES = 25
WEIGHTS = (
    "Sorted from the heaviest rating on, the share of all weight that the ratings hold. The grey line is what equal weights "
    "would give; the further above it, the fewer ratings decide."
)
CALIBRATION = (
    "Cells with a like propensity together: how many were predicted to be logged, and how many were. Points on the grey line are "
    "right; above it more was logged than foretold."
)
BALANCE = (
    "How far the average user or item of the log is from that of all cells, in standard deviations. Grey squares are the log as "
    "it is; weighting should bring the others into the shaded band, where the difference is small."
)
LABELS = {
    "effective_sample_size": "effective sample size",
    "sample_share": "its share of the log",
    "mass_of_weights": "sum of weights over cells (right: 1)",
    "weight_median": "median weight",
    "weight_99": "weight exceeded by 1%",
    "weight_max": "largest weight",
    "top_share": "held by the heaviest 1%",
    "log_loss": "log-loss",
    "brier": "Brier score",
    "slope": "calibration slope (right: 1)",
    "intercept": "calibration intercept (right: 0)",
    "calibration_error": "calibration error",
    "mass_of_propensities": "sum of P over logged (right: 1)",
    "asam_before": "imbalance before weighting",
    "asam": "imbalance after weighting",
    "worst_difference": "worst covariate after weighting",
    "share_below": "cells with next to no chance",
    "smallest": "smallest propensity",
    "relative_error": "relative error of P",
    "bias_bound": "bound on the bias",
}


def diagnosis_page(record: Record) -> Page:
    """Weights, calibration, balance and reach."""
    return Page(
        "Diagnosis of propensities",
        _headline(record),
        f"{count_noun(record['models'][0]['measures']['n_observed'], 'logged rating')}. A propensity is how likely a rating was to "
        "be logged; estimates count each rating 1/P times.",
        tuple(_tiles(record)),
        tuple(sentence(text) for text in record["warnings"]),
        tuple(sections(record)),
        tuple(_facts(record)),
    )


def sections(record: Record) -> Iterator[Section]:
    """What was measured."""
    looks = {each["model"]: look_of(place) for place, each in enumerate(record["models"])}
    if all(each.get("weight_curve") for each in record["models"]):
        yield Section("Who holds the weight", WEIGHTS, (weight_chart(record, looks),))
    if any(each["calibration"] for each in record["models"]):
        yield Section("Calibration", CALIBRATION, (calibration_chart(record, looks),))
    if any(each["balance"] for each in record["models"]):
        yield Section(
            "Balance", BALANCE, (balance_chart(record, looks),), (_balance_table(record),)
        )
    yield Section("All measures", "", tables=(_measures(record),), notes=tuple(_notes(record)))


def _headline(record: Record) -> Headline:
    problems = len(record["warnings"])
    verdict = {0: "nothing speaks against these propensities.", 1: "one thing calls for care."}
    told = (
        _kept_by_one(record["models"][0])
        if len(record["models"]) == 1
        else _kept_by_each(record["models"])
    )
    return (f"{told}; ", False), (verdict.get(problems, f"{problems} things call for care."), True)


def _kept_by_one(model: Record) -> str:
    measures = model["measures"]
    worth = f"{count(measures['effective_sample_size'])} of {measures['n_observed']:,} ratings' worth of data"
    who = f"With {model['model']}, " if model["model"] != "model" else ""
    return sentence(
        f"{who}{worth} is left after weighting ({share(measures['sample_share'])})"
    ).removesuffix(".")


def _kept_by_each(models: Sequence[Record]) -> str:
    """From the least to the most, without a word on who is right: even weights keep most, and correct nothing."""
    by_share = sorted(models, key=lambda each: each["measures"]["sample_share"] or 0.0)
    least, most = (
        f"{share(each['measures']['sample_share'])} ({each['model']})"
        for each in (by_share[0], by_share[-1])
    )
    return f"Weighting leaves {least} to {most} of the log as effective sample size, which does not say whose are right"


def _tiles(record: Record) -> Iterator[Tile]:
    for each in record["models"][:4]:
        yield Tile(
            share(each["measures"]["sample_share"]), "effective share of the log", each["model"]
        )
    if len(record["models"]) > 1:
        return
    measures = record["models"][0]["measures"]
    yield Tile(
        brief(measures["weight_max"]),
        "largest weight",
        f"median {brief(measures['weight_median'])}",
    )
    if measures["slope"] is not None:
        yield Tile(number(measures["slope"], 2), "calibration slope", "1 is right")


def weight_chart(record: Record, looks: Mapping[str, Look]) -> Chart:
    """The share of weight that the heaviest ratings hold."""
    curves = []
    for each in record["models"]:
        pairs = zip(each["weight_curve"]["rows"], each["weight_curve"]["held"], strict=True)
        points = tuple(
            Point(
                rows,
                held,
                f"{each['model']}: the heaviest {percent(rows)} of ratings hold {percent(held)}",
            )
            for rows, held in pairs
        )
        curves.append(Curve(looks[each["model"]], points))
    equal = tuple(
        Point(point.x, point.x, f"equal weights: {percent(point.x)}") for point in curves[0].points
    )
    across = Axis("share of ratings, heaviest first", is_log=True, show=percent, high=1.0)
    drawn = Curves(
        [Curve(Look("seen"), equal), *curves],
        across,
        Axis("share of all weight", show=percent, low=0.0, high=1.0),
    )
    keys = [line_key("equal weights", "seen line"), *_keys(looks)]
    return chart("Share of weight held by the heaviest ratings", drawn.draw, legend=keys)


def calibration_chart(record: Record, looks: Mapping[str, Look]) -> Chart:
    """The observed share against the propensity."""
    curves = []
    for each in record["models"]:
        if each["calibration"]:
            names = ("predicted", "observed", "count")
            bins = zip(*(each["calibration"][name] for name in names), strict=True)
            points = tuple(
                Point(
                    predicted,
                    observed,
                    f"{each['model']}: predicted {brief(predicted)}, logged {brief(observed)}, {count(n)} cells",
                )
                for predicted, observed, n in bins
            )
            curves.append(Curve(looks[each["model"]], points))
    across, up = (
        Axis("propensity, mean of bin", is_log=True),
        Axis("share that was logged", is_log=True),
    )
    drawn = Curves(curves, across, up, is_diagonal_drawn=True)
    return chart(
        "Calibration of the propensities",
        drawn.draw,
        legend=[line_key("right", "reference"), *_keys(looks)],
    )


def balance_chart(record: Record, looks: Mapping[str, Look]) -> Chart:
    """Differences before and after weighting, a line a covariate."""
    found = {each["model"]: each["balance"] for each in record["models"] if each["balance"]}
    first = next(iter(found.values()))
    order = sorted(range(len(first["covariate"])), key=lambda place: -abs(first["before"][place]))[
        :MOST_COVARIATES
    ]
    rows = []
    for place in order:
        name, before = first["covariate"][place], first["before"][place]
        after = tuple(
            (
                each["after"][place],
                looks[model],
                f"{name}, weighted by {model}: {number(each['after'][place], 3, signed=True)}",
            )
            for model, each in found.items()
        )
        rows.append(
            Row(
                name,
                before,
                SEEN,
                f"{name}, in the log: {number(before, 3, signed=True)}",
                others=after,
            )
        )
    forest = Forest(
        [Block("", tuple(rows))],
        Axis("difference to all cells, in standard deviations"),
        reference=0.0,
        band=(-SMALL, SMALL),
    )
    some = (
        f"The {len(order)} farthest off of {len(first['covariate'])}."
        if len(order) < len(first["covariate"])
        else ""
    )
    keys = [
        key("in the log", SEEN),
        *(key(f"weighted by {model}", looks[model]) for model in found),
    ]
    return chart(
        "Balance of covariates before and after weighting", forest.draw, legend=keys, caption=some
    )


def _keys(looks: Mapping[str, Look]) -> list[Key]:
    return [key(model, look, is_line=True) for model, look in looks.items()]


def _measures(record: Record) -> Table:
    models = record["models"]
    kept = [
        name for name in LABELS if any(each["measures"].get(name) is not None for each in models)
    ]
    columns: dict[str, list[Any]] = {"measure": [LABELS[name] for name in kept]}
    return table(
        "Every measure",
        columns
        | {each["model"]: [_value(each["measures"].get(name)) for name in kept] for each in models},
    )


def _value(value: Any) -> Any:
    return round(value) if isinstance(value, float) and abs(value) >= 1000 else value


def _balance_table(record: Record) -> Table:
    rows = [
        (each["model"], *row)
        for each in record["models"]
        if each["balance"]
        for row in zip(
            *(each["balance"][name] for name in ("covariate", "before", "after")), strict=True
        )
    ]
    names = ("model", "covariate", "before", "after")
    return table(
        "Every covariate",
        {name: [_fixed(row[place]) for row in rows] for place, name in enumerate(names)},
    )


def _fixed(value: Any) -> Any:
    return number(value, 3) if isinstance(value, float) else value


def _notes(record: Record) -> Iterator[str]:
    coverage = record["coverage"]
    yield f"Never logged: {count_noun(coverage['users_unseen'], 'user')} and {count_noun(coverage['items_unseen'], 'item')}."
    yield from (sentence(text) for text in record["notes"])
    yield from (
        sentence(f"{each['model']}: {text}") for each in record["models"] for text in each["notes"]
    )


def _facts(record: Record) -> Iterator[tuple[str, str]]:
    yield "logged ratings", f"{record['models'][0]['measures']['n_observed']:,}"
    yield "universe", of_universe(record["universe"])
    yield "propensities", ", ".join(each["model"] for each in record["models"])
    yield "computed by", f"unskew {record['version']}"
