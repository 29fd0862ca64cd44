"""Pages and figures of the reproduced experiments of the paper, and the page of the demo."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from unskew.estimators import ESTIMATORS
from unskew.metrics import metric_label
from unskew.report import PAGES, diagnosis
from unskew.report.charts import (
    CORRECTED,
    OBSERVED,
    TRUTH,
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
    MatrixImage,
    default_look,
    make_legend,
)
from unskew.report.comparison import estimator_looks
from unskew.report.evaluation import build_evaluation_page, make_sections
from unskew.report.figures import draw_charts
from unskew.report.page import Page, Section, Tile, make_table
from unskew.report.text import (
    Record,
    Rows,
    estimator_label,
    format_interval,
    format_number,
    group_rows,
    interval_of,
    select,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PAPER = (
    "Schnabel, Swaminathan, Singh, Chandak and Joachims: Recommendations as Treatments. ICML 2016."
)
SENTENCES = re.compile(r"(?<=[.!?])\s+(?=[A-Z])")
SPREAD = (
    "The true value of each prediction and its estimates: mean and standard deviation over draws."
)
MATRICES = "Users are rows, films are columns (horror, romance, drama). Stronger colors are larger."
GENRES = ("horror", "romance", "drama")
TRUTH_TEXT = (
    "This log is simulated, so the truth is known: the upright line in each chart of estimates."
)


def draw_reproduction(record: Record, ax: Any) -> Figure | None:
    """The figure of an experiment, or the matrices that it is made of."""
    experiment = EXPERIMENTS[record["name"]]
    if record["input_matrices"]:
        return draw_charts(list(_matrix_charts(record["input_matrices"])), ax)
    return draw_charts(
        list(experiment.make_charts(_printed_rows(record))), ax, title=experiment.text
    )


@PAGES.declare(
    "reproduction",
    label="Experiment of the paper",
    summary="A table or figure of the paper, reproduced, next to the paper's numbers.",
    traits={"draw": draw_reproduction},
)
def build_reproduction_page(record: Record) -> Page:
    experiment = EXPERIMENTS[record["name"]]
    first, *others = SENTENCES.split(record["summary"])
    unit = f"{record['unit']}{'' if record['trials'] == 1 else 's'}"
    return Page(
        ((first or f"{experiment.label}, reproduced.", True),),
        " ".join(others),
        (Tile(f"{record['trials']:,}", unit), Tile(str(record["seed"]), "seed")),
        sections=tuple(_reproduction_sections(record, experiment)),
        facts=(
            ("experiment", record["name"]),
            (unit, str(record["trials"])),
            ("seed", str(record["seed"])),
            ("paper", PAPER),
        ),
        topic=f"{experiment.label} of the paper, reproduced",
    )


def _reproduction_sections(record: Record, experiment: PaperExperiment) -> Iterator[Section]:
    if rows := _printed_rows(record):
        yield Section("Results", experiment.text, tuple(experiment.make_charts(rows)))
    if record["input_matrices"]:
        charts = tuple(_matrix_charts(record["input_matrices"]))
        yield Section("The matrices", MATRICES, charts, has_small_charts=True)
    if record["input_table"]:
        table = make_table("The input of the experiment, block by block", record["input_table"])
        yield Section("The input", tables=(table,))
    if record["table"]:
        table = make_table(record["caption"], _repeat_names(record["table"]))
        yield Section("The table", tables=(table,))


def _printed_rows(record: Record) -> list[Record]:
    """The rows that the paper also prints, without variants of our own."""
    return [row for row in record["rows"] if "variant" not in row]


def _repeat_names(columns: Mapping[str, Sequence[Any]]) -> dict[str, list[Any]]:
    """Columns in which a name is repeated on the rows below it, so sorting keeps them together."""
    filled = {name: list(values) for name, values in columns.items()}
    for name in {"prediction", "metric"} & filled.keys():
        for row in range(1, len(filled[name])):
            filled[name][row] = filled[name][row] or filled[name][row - 1]
    return filled


def _matrix_charts(matrices: Mapping[str, Sequence[Sequence[float]]]) -> Iterator[Chart]:
    for title, values in matrices.items():
        if title.startswith(("Y:", "Y1", "Y2")):
            ticks = [1.0, 2.0, 3.0, 4.0, 5.0]
            low = 1.0
        else:
            ticks = sorted({value for row in values for value in row})
            low = 0.0
        yield Chart(title, MatrixImage(values, low, ticks[-1], ticks, GENRES))


def _spread_charts(rows: Rows) -> Iterator[Chart]:
    """True values and estimates: a forest for each metric, a group for each prediction."""
    estimators = [name for name, value in rows[0].items() if isinstance(value, Mapping)]
    looks = estimator_looks(estimators)
    legend = (
        *make_legend({estimator_label(name): look for name, look in looks.items()}),
        LegendEntry("Truth", TRUTH, "rule"),
    )
    for (metric,), selected in group_rows(rows, "metric").items():
        groups = [
            ForestGroup(
                row["prediction"],
                tuple(_spread_row(row, name, look) for name, look in looks.items()),
                row["true"],
            )
            for row in selected
        ]
        label = metric_label(metric)
        yield Chart(label, Forest(groups, ChartAxis(label)), legend)


def _spread_row(row: Record, estimator: str, look: Look) -> ForestRow:
    mean, std, label = row[estimator]["mean"], row[estimator]["std"], estimator_label(estimator)
    text = f"{format_number(mean)} ± {format_number(std)}"
    tip = f"{row['prediction']}, {label}: {text}; true {format_number(row['true'])}"
    return ForestRow(label, mean, look, tip, mean - std, mean + std, text)


def _error_charts(rows: Rows) -> Iterator[Chart]:
    """RMSE of the estimates: a chart for each metric, a curve for each estimator."""
    for (metric,), selected in group_rows(rows, "metric").items():
        title = f"RMSE of the {metric_label(metric)} estimate"
        yield _curve_chart(selected, "estimator", title)


def _model_charts(rows: Rows) -> Iterator[Chart]:
    """Errors of the models: a chart for each panel, a curve for each model."""
    for selected in group_rows(rows, "panel").values():
        yield _curve_chart(selected, "model", "MSE over all cells")


def _curve_chart(rows: Rows, series: str, title: str) -> Chart:
    """A curve for each model or estimator, over the sample size or else over alpha."""
    x_name, x_title = "alpha", "alpha (1: missing at random)"
    if "sample_size" in rows[0]:
        x_name, x_title = "sample_size", "random ratings for naive Bayes"
    names = dict.fromkeys(row[series] for row in rows)
    looks = {name: _series_look(name, position) for position, name in enumerate(names)}
    curves = [
        Curve(look, tuple(_curve_point(row, name, x_name) for row in select(rows, {series: name})))
        for name, look in looks.items()
    ]
    ticks = sorted({row[x_name] for row in rows})
    x_axis = ChartAxis(x_title, is_log=True, ticks=ticks)
    content = Curves(curves, x_axis, ChartAxis(title, is_log=True))
    legend = make_legend({_series_label(name): look for name, look in looks.items()}, "line")
    return Chart(title, content, legend)


def _series_label(name: str) -> str:
    """The label of an estimator; IPS-NB for ips-nb; the name of a model as it is."""
    return name.upper() if name.islower() and name not in ESTIMATORS else estimator_label(name)


def _series_look(name: str, position: int) -> Look:
    """The look of the estimator in a name such as ``MF-IPS`` or ``snips-known``.

    Series with estimated propensities (``-nb``) have looks of their own, and those with known
    propensities are dashed: curves may lie on top of one another.
    """
    words = name.lower().split("-")
    estimators = [word for word in words if word in ESTIMATORS]
    if not estimators or "nb" in words:
        return default_look(position + 1)
    look = estimator_looks(estimators)[estimators[0]]
    return replace(look, dash="6 3") if "known" in words else look


def _curve_point(row: Record, name: str, x_name: str) -> CurvePoint:
    """A lower limit near zero is raised, since a logarithmic axis cannot show it."""
    text = format_interval(*interval_of(row, "ours"))
    tip = f"{_series_label(name)} at {row[x_name]:g}: {text}"
    low = max(row["ci_low"], row["ours"] / 100)
    return CurvePoint(row[x_name], row["ours"], tip, low, row["ci_high"])


def _test_error_charts(rows: Rows) -> Iterator[Chart]:
    """Our test errors next to the paper's: a chart for each data set and metric."""
    legend = make_legend({"ours": CORRECTED, "paper": OBSERVED})
    for (data, metric), selected in group_rows(rows, "data", "metric").items():
        title = f"{metric_label(metric)} on {str(data).capitalize()}"
        group = ForestGroup("", tuple(_test_error_row(row) for row in selected))
        yield Chart(title, Forest([group], ChartAxis(f"{title} (lower is better)")), legend)


def _test_error_row(row: Record) -> ForestRow:
    model, paper, text = row["model"], row.get("paper"), format_number(row["ours"])
    tip = f"{model}, paper: {format_number(paper)}"
    others = () if paper is None else ((paper, OBSERVED, tip),)
    limits = row.get("ci_low"), row.get("ci_high")
    return ForestRow(model, row["ours"], CORRECTED, f"{model}, ours: {text}", *limits, text, others)


@dataclass(frozen=True, slots=True)
class PaperExperiment:
    """How a table or figure of the paper is shown."""

    label: str
    text: str
    make_charts: Callable[[Rows], Iterator[Chart]]


EXPERIMENTS: Mapping[str, PaperExperiment] = {
    "toy": PaperExperiment("Figure 1", SPREAD, _spread_charts),
    "table1": PaperExperiment("Table 1", SPREAD, _spread_charts),
    "figure2": PaperExperiment(
        "Figure 2",
        "Error of the estimates as selection grows stronger. Shaded: 95% bands over trials.",
        _error_charts,
    ),
    "figure3": PaperExperiment(
        "Figure 3",
        "Error of matrix factorization over all cells. Shaded: 95% bands over trials.",
        _model_charts,
    ),
    "figure4": PaperExperiment(
        "Figure 4",
        "Error of the estimates as the random sample grows. Shaded: 95% bands over trials.",
        _error_charts,
    ),
    "table2": PaperExperiment(
        "Table 2",
        "Error on the uniformly random test: ours with its 95% interval, and the paper's.",
        _test_error_charts,
    ),
}


@PAGES.declare(
    "demo",
    label="Demonstration on a simulated log",
    summary="An evaluation next to the known truth, and the diagnosis of its propensities.",
)
def build_demo_page(record: Record) -> Page:
    page = build_evaluation_page(record)
    truth = {(row["model"], row["metric"]): row["value"] for row in record["truth"]}
    *sections, numbers = (
        replace(section, text=f"{section.text} {TRUTH_TEXT}")
        if section.title == "Estimates"
        else section
        for section in make_sections(record, truth)
    )
    propensities = [
        section for section in diagnosis.make_sections(record["diagnosis"]) if section.charts
    ]
    return replace(
        page,
        sections=(Section("What happened", record["summary"]), *sections, *propensities, numbers),
        facts=(*page.facts, ("seed", str(record["seed"]))),
    )
