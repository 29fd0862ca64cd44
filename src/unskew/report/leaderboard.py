"""The page of a leaderboard: errors, ties with the best, regret, and published numbers."""

from __future__ import annotations

from collections.abc import Iterator

from unskew.metrics import metric_label
from unskew.model_selection.verdicts import (
    BASELINE,
    BEST,
    MARKS,
    TIE_MEANING,
    TIED,
    count_seeds,
    format_seeds,
    is_incomplete,
    join_failures,
    list_cautions,
    write_headline,
)
from unskew.report import PAGES
from unskew.report.charts import (
    CORRECTED,
    OBSERVED,
    Chart,
    ChartAxis,
    Forest,
    ForestGroup,
    ForestRow,
    keep_first,
    make_legend,
)
from unskew.report.page import Page, PageTable, Section, Tile, make_table
from unskew.report.text import (
    Record,
    Rows,
    format_number,
    label_columns,
    select,
    to_sentence,
)
from unskew.tables import join_words

CHOICE = (
    "What four-fold cross-validation on the log chose, and its regret: the error on the test minus "
    "the least error of the same grid, which only the test can know. The rank correlation is that "
    "of scores and test errors over the grid. At the edge: seeds whose choice was the least or the "
    "greatest value of a grid."
)
PUBLISHED = (
    "Numbers of the literature, as printed, and the least errors of this leaderboard. They are "
    "comparable only with the protocol that they follow."
)
LOOKS = {"best, or cannot be told from it": CORRECTED, "worse, or knows the test": OBSERVED}


@PAGES.declare(
    "leaderboard",
    label="Leaderboard",
    summary="Which learner is best on a random test, under every protocol, and what stays open.",
)
def build_leaderboard_page(record: Record) -> Page:
    protocol, metric = record["rows"][0]["protocol"], record["rows"][0]["metric"]
    rows = _select_ranked(record, protocol, metric)
    best, name = rows[0], metric_label(metric)
    n_ties = sum(row["verdict"] == TIED for row in rows)
    regrets = [row["regret"] for row in rows if row["regret"] is not None]
    tiles = [
        Tile(format_number(best["mean"], 3), f"best {name}, {protocol}", best["learner"]),
        Tile(str(n_ties), "cannot be told from the best", TIE_MEANING),
        Tile(str(len(rows)), "learners"),
        Tile(count_seeds(record), "seeds"),
    ]
    if regrets:
        mean = sum(regrets) / len(regrets)
        tiles.insert(2, Tile(format_number(mean, 3), "mean regret of cross-validation"))
    return Page(
        write_headline(record),
        f"{record['description']} Least mean error first; brackets are {record['level']:.0%} "
        f"intervals, and differences are paired by {record['paired_by']}.",
        tuple(tiles),
        tuple(_list_warnings(record)),
        tuple(_build_sections(record)),
        (
            ("data", record["data"]),
            ("grids written down on", record["grids_written"]),
            ("seeds", count_seeds(record)),
            ("sample of the intervals", f"{record['paired_by']}s"),
            ("p-values", "corrected by Holm's method for all pairs of learners"),
        ),
    )


def _select_ranked(record: Record, protocol: str, metric: str) -> list[Record]:
    """The rows of one protocol and metric without the constant that knows the test."""
    rows = select(record["rows"], {"protocol": protocol, "metric": metric})
    return [row for row in rows if row["verdict"] != BASELINE]


def _list_warnings(record: Record) -> Iterator[str]:
    if "leaky" in record["protocols"]:
        yield (
            "The protocol leaky uses the test for propensities and for the choice of settings. It "
            "is shown to compare with published numbers, not to choose a learner."
        )
    yield from record["warnings"]
    yield from map(to_sentence, list_cautions(record))
    for learners, protocols, reason in join_failures(record["failures"]):
        verb = "has" if len(learners) == 1 else "have"
        text = to_sentence(reason)
        yield f"{join_words(learners)} {verb} no number under {protocols}: {text}"


def _build_sections(record: Record) -> Iterator[Section]:
    metrics = list(dict.fromkeys(row["metric"] for row in record["rows"]))
    yield Section("All protocols", tables=(_compare_protocols(record, metrics[0]),))
    for protocol, summary in record["protocols"].items():
        charts, tables = [], []
        for metric in metrics:
            rows = select(record["rows"], {"protocol": protocol, "metric": metric})
            if metric == metrics[0]:
                charts.append(_draw_errors(rows, metric))
            tables.append(_make_table(rows, metric))
        yield Section(f"Protocol: {protocol}", to_sentence(summary), tuple(charts), tuple(tables))
    choices = _tabulate_choices(record, metrics[0])
    if choices is not None:
        yield Section("What cross-validation chose", CHOICE, tables=(choices,))
    if record["published"]:
        columns = {"learner": "learner", "metric": "metric", "value": "value", "source": "source"}
        published = [*record["published"], *_list_best(record)]
        table = make_table("As published, and here", label_columns(published, columns))
        yield Section("Published numbers", PUBLISHED, tables=(table,))


def _list_best(record: Record) -> Iterator[Record]:
    """The least error under each protocol, as a row beside those of the literature."""
    for metric in dict.fromkeys(row["metric"] for row in record["published"]):
        for protocol in record["protocols"]:
            for row in select(_select_ranked(record, protocol, metric), {"verdict": BEST}):
                source = f"best of this leaderboard: protocol {protocol!r}"
                best = {"learner": row["learner"], "value": round(row["mean"], 3)}
                yield best | {"metric": metric, "source": source}


def _compare_protocols(record: Record, metric: str) -> PageTable:
    """Errors of every learner under every protocol; * is the best, = cannot be told from it."""
    rows = select(record["rows"], {"metric": metric})
    learners = list(dict.fromkeys(row["learner"] for row in rows))
    by_name = {(row["learner"], row["protocol"]): row for row in rows}
    columns: dict[str, list[object]] = {"learner": list(learners)}
    for protocol in record["protocols"]:
        cells = [by_name.get((learner, protocol)) for learner in learners]
        columns[protocol] = [
            None
            if cell is None
            else f"{format_number(cell['mean'], 3)}{MARKS.get(cell['verdict'], '')}"
            for cell in cells
        ]
    seeds = f" after {format_seeds(record)}" if is_incomplete(record) else ""
    legend = f"* best, = cannot be told from the best, {TIE_MEANING}"
    return make_table(f"{metric_label(metric)}{seeds}; {legend}", columns)


def _draw_errors(rows: Rows, metric: str) -> Chart:
    forest_rows = [
        ForestRow.of_interval(
            row["learner"],
            CORRECTED if row["verdict"] in (BEST, TIED) else OBSERVED,
            (row["mean"], row["ci_low"], row["ci_high"]),
        )
        for row in rows
    ]
    kept, caption = keep_first(forest_rows, range(len(rows)), rows_each=1, noun="best learners")
    name = metric_label(metric)
    forest = Forest([ForestGroup("", tuple(kept))], ChartAxis(name))
    return Chart(f"{name} of all learners", forest, make_legend(LOOKS), caption=caption)


def _make_table(rows: Rows, metric: str) -> PageTable:
    headings = {
        "learner": "learner",
        "verdict": "verdict",
        "mean": metric_label(metric),
        "ci_low": "low",
        "ci_high": "high",
        "behind": "behind the best",
        "behind_low": "low ",
        "behind_high": "high ",
        "p_holm": "p (Holm)",
        "std_over_repeats": "std. over seeds",
        "seconds": "seconds",
    }
    return make_table(f"{metric_label(metric)}, best first", label_columns(rows, headings))


def _tabulate_choices(record: Record, metric: str) -> PageTable | None:
    rows = [
        row
        for row in select(record["rows"], {"metric": metric})
        if row["regret"] is not None and row["protocol"] == record["rows"][0]["protocol"]
    ]
    if not rows:
        return None
    headings = {
        "learner": "learner",
        "mean": metric_label(metric),
        "cv_score": "cross-validated",
        "regret": "regret",
        "rank_correlation": "rank correlation",
        "at_edge": "at the edge",
        "chosen": "chosen most often",
    }
    return make_table("Choices and regret", label_columns(rows, headings))
