"""Pages of a cross-validation and of a comparison of learners."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from unskew.estimators import corrects_selection
from unskew.metrics import METRICS, metric_label
from unskew.report import PAGES
from unskew.report.charts import (
    CORRECTED,
    Chart,
    ChartAxis,
    Curve,
    CurvePoint,
    Curves,
    Forest,
    ForestGroup,
    ForestRow,
    Heatmap,
    keep_first,
)
from unskew.report.comparison import difference_forest
from unskew.report.page import Page, PageTable, Section, Tile, make_table
from unskew.report.text import (
    Record,
    Rows,
    describe_metric,
    estimator_label,
    format_interval,
    format_number,
    format_setting,
    format_settings,
    group_rows,
    interval_of,
    label_columns,
    select,
    to_sentence,
)
from unskew.tables import count_noun

TWO_SETTINGS = (
    "Each box is one combination of two settings: the better its score, the stronger its color. "
    "The outlined combination was chosen. All other settings are as chosen."
)
ONE_SETTING = (
    "The score of each value of one setting, as a mean over folds. The shaded band is one standard "
    "deviation over folds."
)
LEARNING = (
    "The objective of the solver, step by step, while the chosen settings were fitted to the whole "
    "log. A flat end means that the fit was finished."
)
PAIRED = (
    "Each learner minus the reference, paired by user of the test. An interval that excludes zero "
    "tells the two learners apart."
)
FITTED_TO_TEST = "best constant"
"""The row of a learner comparison that uses the test, and therefore cannot be the best learner."""


@PAGES.declare(
    "cross_validation",
    label="Cross-validation",
    summary="Which settings are best, by how much, and how the fit went.",
)
def build_cross_validation_page(record: Record) -> Page:
    rows, name = record["rows"], metric_label(record["metric"])
    best = _chosen_row(record)
    scope = "on held-out ratings, unweighted"
    if _is_weighted(record) and corrects_selection(record["estimator"]):
        scope = f"over all cells by {estimator_label(record['estimator'])}"
    spread = "" if best["std"] is None else f"± {format_number(best['std'], 3)} over folds"
    worst = [Tile(format_number(row["score"], 3), f"worst {name}") for row in rows[1:][-1:]]
    score = format_number(best["score"], 3)
    is_best = record.get("rule", "best") == "best"
    verdict = "is best" if is_best else "is the simplest within one standard error of the best"
    return Page(
        (
            (f"Of {count_noun(len(rows), 'setting')}, ", False),
            (f"{format_settings(record['best_params'])} {verdict}: {name} {score}.", True),
        ),
        f"{describe_metric(record['metric'])} {scope}, mean over folds.",
        (
            Tile(score, f"{'best' if is_best else 'chosen'} {name}", spread),
            *worst,
            Tile(str(len(rows)), "settings tried"),
            Tile(f"{sum(row['seconds'] for row in rows):.1f} s", "total time of the fits"),
        ),
        tuple(record["edges"]),
        tuple(_search_sections(record)),
        tuple(_search_facts(record)),
    )


def _is_weighted(record: Record) -> bool:
    """Whether the score used propensities; records of 0.1.0 do not say."""
    return bool(record.get("is_weighted", True))


def _chosen_row(record: Record) -> Record:
    """The row of the chosen settings, which the rule of the search may prefer to the best."""
    chosen = record["best_params"]
    rows: list[Record] = [
        row for row in record["rows"] if all(row[name] == chosen[name] for name in chosen)
    ]
    return rows[0]


def _search_sections(record: Record) -> Iterator[Section]:
    searched = [
        name for name in record["best_params"] if len(_list_values(record["rows"], name)) > 1
    ]
    if len(searched) >= 2:
        chart = _settings_heatmap(record, searched[0], searched[1])
        yield Section("Two settings together", TWO_SETTINGS, (chart,))
    numeric = [name for name in searched if _is_numeric(record["rows"], name)]
    if numeric:
        charts = tuple(_setting_chart(record, name) for name in numeric)
        yield Section("One setting at a time", ONE_SETTING, charts)
    if record["history"]:
        yield Section("Learning curve", LEARNING, (_learning_chart(record["history"]),))
    yield Section("All settings", tables=(_search_table(record),))


def _list_values(rows: Rows, name: str) -> list[Any]:
    """The distinct values of a setting: numbers in order, then the rest as text."""
    values = {format_setting(row[name]): row[name] for row in rows}.values()
    numbers = sorted(value for value in values if isinstance(value, (int, float)))
    return numbers + sorted((v for v in values if not isinstance(v, (int, float))), key=str)


def _is_numeric(rows: Rows, name: str) -> bool:
    values = [row[name] for row in rows]
    return all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in values)


def _vary(record: Record, *names: str) -> list[Record]:
    """The rows that differ from the best one only in these settings."""
    fixed = {key: value for key, value in record["best_params"].items() if key not in names}
    return [row for row in record["rows"] if all(row[key] == fixed[key] for key in fixed)]


def _settings_heatmap(record: Record, x_name: str, y_name: str) -> Chart:
    metric, best = metric_label(record["metric"]), record["best_params"]
    x_values = [format_setting(value) for value in _list_values(record["rows"], x_name)]
    y_values = [format_setting(value) for value in _list_values(record["rows"], y_name)]
    tried = {
        (format_setting(row[y_name]), format_setting(row[x_name])): row
        for row in _vary(record, x_name, y_name)
    }
    cells = [[tried.get((y, x)) for x in x_values] for y in y_values]
    heatmap = Heatmap(
        rows=y_values,
        columns=x_values,
        values=[[None if cell is None else cell["score"] for cell in row] for row in cells],
        texts=[
            ["" if cell is None else format_number(cell["score"], 3) for cell in row]
            for row in cells
        ],
        tips=[[_describe_setting(cell, metric, best) for cell in row] for row in cells],
        x_title=x_name,
        y_title=y_name,
        best=(
            y_values.index(format_setting(best[y_name])),
            x_values.index(format_setting(best[x_name])),
        ),
        higher_is_better=record["rows"][0]["score"] > record["rows"][-1]["score"],
    )
    return Chart(f"{metric} by {x_name} and {y_name}", heatmap, caption="Shaded by rank.")


def _describe_setting(cell: Record | None, metric: str, names: Record) -> str:
    if cell is None:
        return "not tried"
    settings = format_settings({name: cell[name] for name in names})
    return f"{settings}: {metric} {format_number(cell['score'], 4)}"


def _setting_chart(record: Record, name: str) -> Chart:
    """The score against one setting, with the other settings as chosen."""
    metric = metric_label(record["metric"])
    rows = sorted(_vary(record, name), key=lambda row: row[name])
    points = tuple(
        CurvePoint(
            float(row[name]),
            row["score"],
            f"{name} = {format_setting(row[name])}: {metric} {format_number(row['score'], 4)}",
            row["score"] - row["std"],
            row["score"] + row["std"],
        )
        for row in rows
    )
    values = [point.x for point in points]
    is_log = values[0] > 0 and values[-1] > 8 * values[0]
    x_axis = ChartAxis(name, is_log=is_log, format="{:g}".format, ticks=values)
    content = Curves([Curve(CORRECTED, points)], x_axis, ChartAxis(metric))
    return Chart(f"{metric} by {name}", content)


def _learning_chart(history: Sequence[float]) -> Chart:
    points = tuple(
        CurvePoint(float(step), value, f"step {step}: {value:,.6g}")
        for step, value in enumerate(history)
    )
    x_axis = ChartAxis("step", format="{:g}".format, low=0.0)
    content = Curves([Curve(CORRECTED, points)], x_axis, ChartAxis("objective"))
    return Chart("Learning curve of the chosen model", content)


def _search_table(record: Record) -> PageTable:
    headings = {
        "score": metric_label(record["metric"]),
        "std": "std. over folds",
        "n_iter": "steps",
    }
    columns = {}
    for name in record["rows"][0]:
        values = [row[name] for row in record["rows"]]
        is_setting = name in record["best_params"]
        columns[headings.get(name, name)] = (
            [format_setting(value) for value in values] if is_setting else values
        )
    return make_table("All settings, best first", columns)


def _search_facts(record: Record) -> Iterator[tuple[str, str]]:
    names = {
        "model": "model",
        "n_observed": "logged ratings",
        "n_folds": "folds",
        "n_repeats": "splits into folds",
        "rule": "rule",
        "random_state": "seed",
    }
    for name, label in names.items():
        if record.get(name) is not None:
            value = record[name]
            yield label, f"{value:,}" if isinstance(value, int) else str(value)
    yield "score", f"{record['metric']} by {record['estimator']}"
    if not _is_weighted(record):
        yield "weights", "none, as no propensities were given"
    steps = f"{len(record['history']) - 1:,}" if record["history"] else "unknown"
    yield "steps of the final fit", steps


@PAGES.declare(
    "learners",
    label="Learners compared",
    summary="Which learner is best, and by how much, on every test and by every metric.",
)
def build_learners_page(record: Record) -> Page:
    test, metric = record["rows"][0]["test"], record["rows"][0]["metric"]
    rows = _select_sorted(record, test, metric)
    fair = [row for row in rows if row["learner"] != FITTED_TO_TEST]
    best, name = fair[0], metric_label(metric)
    interval = format_interval(*interval_of(best, "mean"))
    reference = select(rows, {"learner": record["reference"]})
    return Page(
        (
            (f"Of {count_noun(len(fair), 'learner')}, ", False),
            (f"{best['learner']} has the best {name}: {interval}.", True),
        ),
        f"{describe_metric(metric)}, on {test}, mean over "
        f"{count_noun(record['n_repeats'], 'repetition')}. "
        f"Brackets are {record['level']:.0%} intervals.",
        (
            Tile(format_number(best["mean"], 3), f"best {name}", best["learner"]),
            *(
                Tile(format_number(row["mean"], 3), f"{name} of the reference", row["learner"])
                for row in reference
            ),
            Tile(str(record["n_repeats"]), "repetitions"),
            Tile(str(len(fair)), "learners"),
        ),
        tuple(_learner_warnings(record)),
        tuple(_learner_sections(record)),
        (
            ("reference", record["reference"]),
            ("intervals", f"{record['level']:.0%}, over the users of the test"),
            ("p-values", "corrected for the number of learners by Holm's method"),
        ),
    )


def _learner_warnings(record: Record) -> Iterator[str]:
    for name, n_seen in record["n_seen"].items():
        if n_seen:
            yield (
                f"{n_seen:,} cells of {name} are also in the training log. Errors there are too "
                "small."
            )
    for failure in record.get("failures", ()):
        yield f"{failure['learner']} has no number: {to_sentence(failure['reason'])}"


def _is_higher_better(metric: str) -> bool:
    stem = metric.partition("@")[0]
    return stem in METRICS and bool(METRICS[stem].target.higher_is_better)


def _select_sorted(record: Record, test: str, metric: str) -> list[Record]:
    """The rows of one test and metric, the best first."""
    rows = select(record["rows"], {"test": test, "metric": metric})
    return sorted(rows, key=lambda row: row["mean"], reverse=_is_higher_better(metric))


def _learner_sections(record: Record) -> Iterator[Section]:
    for test, metric in group_rows(record["rows"], "test", "metric"):
        rows = _select_sorted(record, test, metric)
        title = f"{metric_label(metric)} on {test}"
        charts = tuple(_learner_charts(record, rows, metric))
        yield Section(title, PAIRED, charts, (_learner_table(rows, metric),))


def _learner_charts(record: Record, rows: Rows, metric: str) -> Iterator[Chart]:
    name = metric_label(metric)
    group, caption = _learner_group(rows, "mean", "ci_low", "ci_high")
    yield Chart(f"{name} of all learners", Forest([group], ChartAxis(name)), caption=caption)
    if differences := [row for row in rows if row["difference"] is not None]:
        keys = ("difference", "difference_low", "difference_high")
        group, caption = _learner_group(differences, *keys, with_sign=True)
        pair, higher_is_better = ("learner", "reference"), _is_higher_better(metric)
        forest = difference_forest([group], metric, pair=pair, higher_is_better=higher_is_better)
        yield Chart(f"Learner minus {record['reference']}", forest, caption=caption)


def _learner_group(
    rows: Rows, value: str, low: str, high: str, *, with_sign: bool = False
) -> tuple[ForestGroup, str]:
    """A row for each of the best learners, and a caption on those left out."""
    intervals = [(row["learner"], (row[value], row[low], row[high])) for row in rows]
    forest_rows = [
        ForestRow.of_interval(learner, CORRECTED, interval, with_sign=with_sign)
        for learner, interval in intervals
    ]
    kept, caption = keep_first(forest_rows, range(len(rows)), rows_each=1, noun="best learners")
    return ForestGroup("", tuple(kept)), caption


def _learner_table(rows: Rows, metric: str) -> PageTable:
    headings = {
        "learner": "learner",
        "mean": metric_label(metric),
        "ci_low": "low",
        "ci_high": "high",
        "difference": "difference",
        "p_holm": "p (Holm)",
        "cv_score": "cross-validated",
        "seconds": "seconds",
        "chosen": "chosen",
    }
    return make_table("All learners, best first", label_columns(rows, headings))
