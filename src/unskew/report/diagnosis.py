"""The page of a diagnosis of propensities, and its figure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from unskew.diagnostics.result import MEASURES
from unskew.diagnostics.specification import SpecificationTest
from unskew.report import PAGES
from unskew.report.charts import (
    OBSERVED,
    Chart,
    ChartAxis,
    Curve,
    CurvePoint,
    Curves,
    Forest,
    ForestGroup,
    ForestRow,
    LegendEntry,
    Look,
    default_looks,
    make_legend,
)
from unskew.report.figures import draw_charts
from unskew.report.page import Headline, Page, PageTable, Section, Tile, make_table
from unskew.report.text import (
    Record,
    format_brief,
    format_count,
    format_number,
    format_share,
    format_universe,
    to_sentence,
)
from unskew.tables import count_noun

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SMALL_DIFFERENCE = 0.1
"""Standardized mean differences up to here count as balanced."""
MAX_COVARIATES = 20
WEIGHTS = (
    "The share of all weight that the heaviest ratings have. The gray line is for equal weights. "
    "The further a curve is above it, the fewer ratings decide the estimates."
)
CALIBRATION = (
    "Cells with similar propensities together: the share that was predicted to be logged, and the "
    "share that was. Points on the gray line fit the log, which does not show that they are right "
    "for ratings that people like. Above it, more was logged than predicted."
)
BALANCE = (
    "The distance between the average user or item of the log and that of all cells, in standard "
    "deviations. Gray squares are the log itself. Weighting should move the other points into the "
    "shaded band, where the difference is small."
)


def draw_diagnosis(record: Record, ax: Any, *, panels: Sequence[str]) -> Figure | None:
    """The named panels side by side."""
    return draw_charts([CHARTS[panel](record) for panel in panels], ax)


@PAGES.declare(
    "diagnosis",
    label="Diagnosis of propensities",
    summary="Weights, calibration, balance and coverage of the propensities of each model.",
    traits={"draw": draw_diagnosis},
)
def build_diagnosis_page(record: Record) -> Page:
    n_observed = record["models"][0]["measures"]["n_observed"]
    return Page(
        _write_headline(record),
        f"{count_noun(n_observed, 'logged rating')}. The propensity P is the probability that a "
        "rating is logged. Estimates count each rating 1/P times.",
        tuple(_make_tiles(record)),
        tuple(record["warnings"]),
        tuple(make_sections(record)),
        (
            ("logged ratings", f"{n_observed:,}"),
            ("universe", format_universe(record["universe"])),
            ("propensities", ", ".join(model["model"] for model in record["models"])),
        ),
        assumptions=tuple(_list_assumptions(record)),
    )


def make_sections(record: Record) -> Iterator[Section]:
    """One section for each part that was measured, and the table of all measures."""
    models = record["models"]
    if all(model.get("weight_curve") for model in models):
        yield Section("Distribution of the weights", WEIGHTS, (weight_chart(record),))
    if any(model["calibration"] for model in models):
        yield Section("Calibration", CALIBRATION, (calibration_chart(record),))
    if any(model["balance"] for model in models):
        yield Section("Balance", BALANCE, (balance_chart(record),), (_balance_table(record),))
    table, notes = _measure_table(models), tuple(_list_notes(record))
    yield Section("All measures", tables=(table,), notes=notes)


def _list_assumptions(record: Record) -> Iterator[str]:
    is_one = len(record["models"]) == 1
    for model in record["models"]:
        if model.get("assumption"):
            yield model["assumption"] if is_one else f"{model['model']}: {model['assumption']}"


def _write_headline(record: Record) -> Headline:
    """The effective sample size of each model, and how many checks warn."""
    n_warnings = len(record["warnings"])
    conclusion = {0: _describe_passed(record), 1: "one check found a problem."}.get(
        n_warnings, f"{n_warnings} checks found problems."
    )
    models = record["models"]
    is_one = len(models) == 1
    text = _describe_sample_size(models[0]) if is_one else _describe_sample_sizes(models)
    return (f"{text}; ", False), (conclusion, True)


def _describe_passed(record: Record) -> str:
    """What may be said if no check found a problem: never that the propensities are right."""
    blind = [m["model"] for m in record["models"] if m.get("sees_ratings") is False]
    tested = any(
        test["subject"] == "mean rating" for m in record["models"] for test in m.get("tests", ())
    )
    if blind and not tested:
        names = "they" if len(blind) == len(record["models"]) else " and ".join(blind)
        return f"{names} never saw a rating, so nobody can tell whether people rate what they like."
    return "no check found a problem, which does not show that the propensities are right."


def _describe_sample_size(model: Record) -> str:
    measures = model["measures"]
    size = format_count(measures["effective_sample_size"])
    subject = f"with {model['model']}, " if model["model"] != "model" else ""
    text = (
        f"{subject}{measures['n_observed']:,} logged ratings are worth {size} after weighting "
        f"({format_share(measures['sample_share'])})"
    )
    return text[:1].upper() + text[1:]


def _describe_sample_sizes(models: Sequence[Record]) -> str:
    """The range of sample sizes. It does not say who is right: equal weights correct nothing."""
    ranked = sorted(models, key=lambda model: model["measures"]["sample_share"] or 0.0)
    least, most = (
        f"{format_share(model['measures']['sample_share'])} ({model['model']})"
        for model in (ranked[0], ranked[-1])
    )
    return (
        f"The effective sample size after weighting is {least} to {most} of the log, which does "
        "not say which propensities are right"
    )


def _make_tiles(record: Record) -> Iterator[Tile]:
    for model in record["models"][:4]:
        share = format_share(model["measures"]["sample_share"])
        yield Tile(share, "effective share of the log", model["model"])
    if len(record["models"]) == 1:
        measures = record["models"][0]["measures"]
        median = f"median {format_brief(measures['weight_median'])}"
        yield Tile(format_brief(measures["weight_max"]), "largest weight", median)
        if measures["slope"] is not None:
            yield Tile(format_number(measures["slope"], 2), "calibration slope", "1 is right")


def _model_looks(record: Record) -> dict[str, Look]:
    return default_looks(model["model"] for model in record["models"])


def weight_chart(record: Record) -> Chart:
    """The share of all weight that the heaviest ratings have, one curve for each model."""
    looks = _model_looks(record)
    legend = [LegendEntry("equal weights", OBSERVED, "plain line")]
    curves = []
    for model in record["models"]:
        name, curve = model["model"], model["weight_curve"]
        points = tuple(
            CurvePoint(
                share,
                weight,
                f"{name}: the heaviest {format_share(share)} of ratings have "
                f"{format_share(weight)} of all weight",
            )
            for share, weight in zip(curve["rows"], curve["held"], strict=True)
        )
        curves.append(Curve(looks[name], points))
        size = format_share(model["measures"]["sample_share"])
        legend.append(LegendEntry(f"{name} (ESS {size})", looks[name], "line"))
    equal = tuple(
        CurvePoint(point.x, point.x, f"equal weights: {format_share(point.x)}")
        for point in curves[0].points
    )
    content = Curves(
        [Curve(Look(OBSERVED.color), equal), *curves],
        ChartAxis("share of ratings, heaviest first", is_log=True, format=format_share, high=1.0),
        ChartAxis("share of all weight", format=format_share, low=0.0, high=1.0),
    )
    return Chart("Share of weight of the heaviest ratings", content, tuple(legend))


def calibration_chart(record: Record) -> Chart:
    """The share of logged cells against the mean propensity of each bin."""
    looks = _model_looks(record)
    legend = [LegendEntry("as predicted", OBSERVED, "thin line")]
    curves = []
    for model in record["models"]:
        if model["calibration"]:
            name = model["model"]
            columns = (model["calibration"][key] for key in ("predicted", "observed", "count"))
            points = tuple(
                CurvePoint(
                    predicted,
                    observed,
                    f"{name}: {format_brief(predicted)} predicted, {format_brief(observed)} "
                    f"logged, {format_count(n_cells)} cells",
                )
                for predicted, observed, n_cells in zip(*columns, strict=True)
            )
            curves.append(Curve(looks[name], points))
            fitted = model["measures"]["slope"]
            label = name if fitted is None else f"{name} (slope {fitted:.2f})"
            legend.append(LegendEntry(label, looks[name], "line"))
    content = Curves(
        curves,
        ChartAxis("propensity, mean of bin", is_log=True),
        ChartAxis("share that was logged", is_log=True),
        has_diagonal=True,
    )
    return Chart("Calibration of the propensities", content, tuple(legend))


def balance_chart(record: Record) -> Chart:
    """Standardized differences before and after weighting, a row for each covariate."""
    looks = _model_looks(record)
    balances = {m["model"]: m["balance"] for m in record["models"] if m["balance"]}
    names, before = (next(iter(balances.values()))[key] for key in ("covariate", "before"))
    order = sorted(range(len(names)), key=lambda position: -abs(before[position]))
    rows = []
    for position in order[:MAX_COVARIATES]:
        name, difference = names[position], before[position]
        after = tuple(
            (
                balance["after"][position],
                looks[model],
                f"{name}, weighted by {model}: "
                f"{format_number(balance['after'][position], 3, with_sign=True)}",
            )
            for model, balance in balances.items()
        )
        tip = f"{name}, in the log: {format_number(difference, 3, with_sign=True)}"
        rows.append(ForestRow(name, difference, OBSERVED, tip, others=after))
    forest = Forest(
        [ForestGroup("", tuple(rows))],
        ChartAxis("difference to all cells, in standard deviations"),
        reference=0.0,
        band=(-SMALL_DIFFERENCE, SMALL_DIFFERENCE),
    )
    weighted = {f"weighted by {model}": looks[model] for model in balances}
    legend = make_legend({"in the log": OBSERVED, **weighted})
    caption = ""
    if len(rows) < len(names):
        caption = f"The {len(rows)} largest differences of {len(names)} covariates."
    return Chart("Balance of covariates before and after weighting", forest, legend, caption)


CHARTS: Mapping[str, Callable[[Record], Chart]] = {
    "weights": weight_chart,
    "calibration": calibration_chart,
    "balance": balance_chart,
}
"""By the names of the panels of ``Diagnosis.plot``."""


def _measure_table(models: Sequence[Record]) -> PageTable:
    """Measures down, models across, without the measures that no model has."""
    labels, parent = {}, ""
    for measure in MEASURES:
        if measure.label is not None:
            is_part = measure.label.startswith(" ")
            parent = parent if is_part else measure.label.partition(":")[0]
            part = measure.label.strip()
            labels[measure.name] = f"{parent}: {part}" if is_part else part
    shown = [
        name for name in labels if any(model["measures"].get(name) is not None for model in models)
    ]
    columns: dict[str, list[Any]] = {"measure": [labels[name] for name in shown]}
    for model in models:
        columns[model["model"]] = [_round_large(model["measures"].get(name)) for name in shown]
    return make_table("All measures; right values in brackets", columns)


def _round_large(value: Any) -> Any:
    return round(value) if isinstance(value, float) and abs(value) >= 1000 else value


def _balance_table(record: Record) -> PageTable:
    columns: dict[str, list[Any]] = {"model": [], "covariate": [], "before": [], "after": []}
    for model in record["models"]:
        if balance := model["balance"]:
            columns["model"] += [model["model"]] * len(balance["covariate"])
            columns["covariate"] += balance["covariate"]
            for name in ("before", "after"):
                columns[name] += [format_number(value, 3) for value in balance[name]]
    return make_table("All covariates", columns)


def _list_notes(record: Record) -> Iterator[str]:
    users, items = (record["coverage"][name] for name in ("users_unseen", "items_unseen"))
    yield f"{count_noun(users, 'user')} and {count_noun(items, 'item')} were never logged."
    yield from (to_sentence(text) for text in record["notes"])
    for model in record["models"]:
        yield from (to_sentence(f"{model['model']}: {text}") for text in model["notes"])
        for test in model.get("tests", ()):
            yield to_sentence(f"{model['model']}: {SpecificationTest(**test)}")
