"""The page of an evaluation, and its figure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from unskew.errors import UsageError
from unskew.estimators import corrects_selection, main_estimator
from unskew.metrics import metric_label
from unskew.metrics.metric import find_list_length
from unskew.report import PAGES
from unskew.report.charts import (
    CORRECTED,
    OBSERVED,
    TRUTH,
    BarGroup,
    Bars,
    Chart,
    ChartAxis,
    Forest,
    ForestGroup,
    ForestRow,
    LegendEntry,
    Look,
    keep_first,
    make_legend,
    mute,
)
from unskew.report.comparison import (
    UNKNOWN_SCOPE,
    Claim,
    difference_forest,
    estimator_looks,
    fails_item_check,
    find_claim,
    find_flip,
    fits_universe,
    is_tied,
    names_unexplained,
    usable_estimators,
    write_headline,
)
from unskew.report.figures import draw_charts
from unskew.report.page import Page, Section, Tile, make_table
from unskew.report.sensitivity import clip_sections
from unskew.report.text import (
    Record,
    Rows,
    common_decimals,
    describe_direction,
    describe_estimators,
    describe_metric,
    estimator_label,
    format_brief,
    format_count,
    format_degrees,
    format_share,
    format_tick,
    format_universe,
    interval_of,
    label_columns,
    select,
    to_sentence,
)
from unskew.tables import count_noun, join_words

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Truth = Mapping[tuple[str, str], float]
"""The true value of each model and metric, where it is known."""
DIFFERENCES = (
    "The difference of two models, rating by rating, is usually more precise than comparing their "
    "intervals. "
)
TOLD_APART: dict[Claim, str] = {
    "plain": "An interval that excludes zero tells the two models apart on ratings like those of "
    "the log.",
    "rejected": "The propensities do not fit this log, so no interval of a weighted estimator "
    "tells models apart.",
    "adjusted": "An interval that excludes zero does not tell the two models apart if people rate "
    "what they like, or if the propensities leave out anything else.",
    "transformed": "The weight transform has changed this result by more than the intervals allow, "
    "so none of them tells the two models apart.",
    "unchanged": "An interval that excludes zero does not tell the two models apart unless the "
    "last reason in the headline is the right one.",
    "unexplained": "An interval that excludes zero does not tell the two models apart if what the "
    "propensities leave out has to do with the errors of the models.",
}
"""What an interval shows, by what the headline claims."""
IF_RIGHT = (
    "An interval that excludes zero tells the two models apart, if the propensities are right."
)
NOT_BY_NAIVE = " Intervals of Naive never tell models apart, because Naive ignores selection."
NOT_A_VERDICT: dict[Claim, str] = {
    "rejected": "Not a verdict: the propensities do not fit this log.",
    "transformed": "Not a verdict: the weight transform decides it.",
    "unchanged": "Not a verdict: the correction changed almost nothing.",
    "unexplained": "Not a verdict: a check failed.",
}
"""Below charts whose intervals tell no models apart, by what the headline claims."""
ONLY_NAIVE = "No corrected estimate has an interval, so this chart tells no models apart."
COLLECT = (
    "collect ratings of random cells and score the models on them (`unskew.evaluate_random_test`). "
    "`unskew.plan_random_sample` says how many are needed"
)
EQUAL = "IPS and SNIPS are equal by construction here, so that they agree shows nothing."
RATINGS = (
    "Gray bars show the share of each rating in the log. Blue bars count every rating 1/P times. "
    "They show the ratings of all users and items, if the propensities are right."
)
REJECTED_RATINGS = (
    "Gray bars show the share of each rating in the log. Blue bars count every rating 1/P times. "
    "They are not the ratings of all users and items, because the propensities do not fit this log."
)
WEIGHTED_RATINGS = (
    "Gray bars show the share of each rating in the log. Blue bars count every rating 1/P times. "
    "They can differ from the ratings of all users and items."
)
WEIGHTS = (
    "This does not show that the estimate is right. Each rating counts 1/P times. "
    "Gray bars show how many ratings have a weight of that size, "
    "and blue bars show their share of all weight. Where the blue bars are far to the right of the "
    "gray bars, a few ratings decide the estimates."
)
LOWER_LIMITS = " Lower limits give steadier estimates that correct less."
PROPENSITY = " The propensity is the probability that a rating was logged."
ESTIMATE_COLUMNS = {
    "model": "model",
    "metric": "metric",
    "estimator": "estimator",
    "estimate": "estimate",
    "std_error": "std. error",
    "ci_low": "low",
    "ci_high": "high",
    "degrees": "degrees of freedom",
}
DIFFERENCE_COLUMNS = {
    "first": "model",
    "second": "minus",
    "metric": "metric",
    "estimator": "estimator",
    "difference": "difference",
    "ci_low": "low",
    "ci_high": "high",
}


def draw_evaluation(record: Record, ax: Any) -> Figure | None:
    """One panel for each metric that has usable estimates, with their intervals."""
    charts = list(estimate_charts(record))
    if not charts:
        raise UsageError(
            "there is nothing to draw: no estimate of this evaluation can be trusted.",
            remedy="Print the result: its warnings say why.",
        )
    return draw_charts(charts, ax)


@PAGES.declare(
    "evaluation",
    label="Evaluation",
    summary="Which model is better, how sure that is, and what the estimates rest on.",
    traits={"draw": draw_evaluation},
)
def build_evaluation_page(record: Record) -> Page:
    metric = next(iter(record["metrics"]))
    shown = usable_estimators(record, metric) or record["estimators"]
    lead = (
        f"{describe_metric(metric)}{_describe_relevance(record, metric)}, "
        f"{describe_direction(higher_is_better=record['metrics'][metric])}, estimated by "
        f"{estimator_label(main_estimator(shown))} from "
        f"{count_noun(record['n_observed'], 'logged rating')}. "
        f"Brackets are {record['level']:.0%} intervals."
        f"{PROPENSITY if record['weights'] is not None else ''}"
    )
    if record.get("propensities"):
        lead += f" {to_sentence(record['propensities'])}"
    check = (record.get("item_check") or {"text": None})["text"]
    return Page(
        write_headline(record, metric),
        lead,
        tuple(_make_tiles(record)),
        tuple(text for text in record["warnings"] if text != check),
        tuple(make_sections(record)),
        tuple(list_facts(record)),
        assumptions=tuple(list_assumptions(record)),
    )


def _describe_relevance(record: Record, metric: str) -> str:
    """Which ratings are relevant, for metrics of lists."""
    threshold = record.get("relevance_threshold")
    if threshold is None or find_list_length(metric) is None:
        return ""
    return f" (ratings of at least {threshold:g} are relevant)"


def list_assumptions(record: Record) -> Iterator[str]:
    """What the weights rest on, a check, how wrong they may be, and the next step.

    What the headline says is not repeated.
    """
    metric = next(iter(record["metrics"]))
    claim, check = find_claim(record, metric), record.get("item_check")
    is_stated = claim == "adjusted" or (claim == "verdict" and record.get("n_random"))
    if record.get("assumption") and not is_stated:
        yield record["assumption"]
    if check is not None and not names_unexplained(record, claim):
        yield f"Check {'passed' if check['passed'] else 'failed'}: {check['text']}"
    names_order = claim in ("verdict", "adjusted", "unchanged")
    names_order = names_order and not names_unexplained(record, claim)
    if record.get("robustness") and names_order and find_flip(record, metric) is None:
        yield record["robustness"]
    step = _find_next_step(record, metric, claim)
    if step:
        yield f"Next step: {step}"


def _ask_for_more(record: Record, metric: str) -> str:
    """What else must hold if two models are not told apart."""
    if not is_tied(record, metric):
        return ""
    return (
        ", and if differences as large as the interval allows do not matter (if they do, collect "
        "a longer log)"
    )


def _offer_random_ratings(record: Record) -> str:
    """That models can be scored on the random ratings, if there are any."""
    if not record.get("n_random"):
        return ""
    count = count_noun(record["n_random"], "random rating")
    return f". Or score the models on your {count} (`unskew.evaluate_random_test`)"


def _find_next_step(record: Record, metric: str, claim: Claim) -> str:
    """What to do next; empty if no estimate is usable or none rests on propensities."""
    if claim == "plain":
        return "estimate propensities and pass them, so that selection is corrected"
    if claim == "unusable" or record["weights"] is None:
        return ""
    if claim == "rejected":
        return (
            "check the propensities, limits that were set on them, and the universe, the number of "
            f"all users and items{_offer_random_ratings(record)}"
        )
    if claim == "adjusted" and names_unexplained(record, claim):
        return (
            "fit propensities that also depend on the item, such as "
            "`PopularityPropensity('both')`. Only random ratings can tell whether people rate "
            "what they like"
        )
    if claim == "transformed":
        return "leave the weight transform out"
    if record.get("n_random"):
        count = f"{count_noun(record['n_random'], 'random rating')}"
        origin = "First find out how they were drawn. " if claim == "unchanged" else ""
        return (
            f"you already have {count}. {origin}If they were really drawn at random "
            "and name users and items, and no model was trained on them, score the models on them: "
            "`unskew.evaluate_random_test`. `unskew.plan_random_sample` says whether they are "
            "enough"
        )
    if claim == "unexplained":
        return f"find propensities that pass the check. Or {COLLECT}"
    if claim == "verdict" and not record.get("propensities"):
        return (
            "none if your system logged ratings with exactly these probabilities"
            f"{_ask_for_more(record, metric)}. If they were guessed or fitted, {COLLECT}"
        )
    return COLLECT


def _make_tiles(record: Record) -> Iterator[Tile]:
    universe, weights = record["universe"], record["weights"]
    density = ""
    if universe is not None:
        density = f"{format_share(record['n_observed'] / (universe[0] * universe[1]))} of all cells"
    yield Tile(format_count(record["n_observed"]), "logged ratings", density)
    if weights is not None:
        size = weights["effective_sample_size"]
        share = f"{format_share(size / weights['n_observed'])} of the log"
        yield Tile(format_count(size), "effective sample size", share)
    if record["weight_shares"] is not None:
        largest, median = (format_brief(record["weight_shares"][k]) for k in ("largest", "median"))
        yield Tile(largest, "largest weight", f"median {median}")
    yield Tile(str(len(record["models"])), "model" if len(record["models"]) == 1 else "models")


def make_sections(record: Record, truth: Truth | None = None) -> Iterator[Section]:
    """All sections of the page; ``truth`` is drawn next to the estimates."""
    claim = find_claim(record, next(iter(record["metrics"])))
    if record["differences"]:
        is_doubted = fails_item_check(record) and claim in ("adjusted", "verdict")
        text = DIFFERENCES + TOLD_APART.get("unexplained" if is_doubted else claim, IF_RIGHT)
        if claim != "plain" and "naive" in record["estimators"]:
            text += NOT_BY_NAIVE
        if _has_equal_estimators(record):
            text += f" {EQUAL}"
        yield Section("Differences", text, tuple(difference_charts(record)))
    text = describe_estimators(record["estimators"])
    is_equal_unsaid = _has_equal_estimators(record) and not record["differences"]
    notes: tuple[str, ...] = (EQUAL,) if is_equal_unsaid else ()
    yield Section("Estimates", text, tuple(estimate_charts(record, truth)), notes=notes)
    if record["ratings"] is not None:
        yield _ratings_section(record)
    if record["weight_shares"] is not None:
        charts = (weights_chart(record["weight_shares"]),)
        notes = tuple(_weight_notes(record["weights"]))
        yield Section("Is the estimate stable? The weights", WEIGHTS, charts, notes=notes)
    clipped = [row for row in record["clipping"] or () if _is_usable(record, row)]
    yield from clip_sections(clipped, record["level"], LOWER_LIMITS)
    rows = [
        {**row, "degrees": format_degrees(row["degrees"])} if "degrees" in row else row
        for row in record["rows"]
    ]
    tables = [make_table("All estimates", label_columns(rows, ESTIMATE_COLUMNS))]
    if record["differences"]:
        columns = label_columns(orient_differences(record), DIFFERENCE_COLUMNS)
        tables.append(make_table("All differences", columns))
    yield Section("All numbers", tables=tuple(tables))


def _has_equal_estimators(record: Record) -> bool:
    """Whether weights that add up by construction make IPS and SNIPS the same."""
    if not {"ips", "snips"} <= set(record["estimators"]):
        return False
    ips, snips = (
        [row["estimate"] for row in select(record["rows"], {"estimator": name})]
        for name in ("ips", "snips")
    )
    is_balanced = (record["weights"] or {}).get("is_balanced", False)
    return is_balanced and all(map(partial(math.isclose, rel_tol=1e-9), ips, snips))


def _ratings_section(record: Record) -> Section:
    ratings, is_blind = record["ratings"], record.get("sees_ratings") is False
    doubts = ("transform_effect", "no_correction", "unexplained")
    is_corrected = fits_universe(record) and not any(map(record.get, doubts))
    weighted = "corrected" if is_corrected else "weighted"
    scope = record.get("adjusts_for", UNKNOWN_SCOPE)
    if is_blind:
        weighted = f"adjusted for {scope} only" if scope else "weighted"
    charts = (ratings_chart(ratings, weighted),)
    if ratings["corrected"] is None:
        return Section("Ratings in the log", charts=charts)
    if is_blind or not is_corrected:
        text = WEIGHTED_RATINGS if fits_universe(record) else REJECTED_RATINGS
        return Section("Ratings in the log, before and after weighting", text, charts)
    return Section("Ratings in the log and in all cells", RATINGS, charts)


def _is_usable(record: Record, row: Record) -> bool:
    return row["estimator"] in usable_estimators(record, row["metric"])


def _describe_undrawn(record: Record, metric: str) -> str:
    """Which estimators a chart of this metric leaves out, because they are not usable."""
    usable = usable_estimators(record, metric)
    undrawn = [estimator_label(name) for name in record["estimators"] if name not in usable]
    return f"Not drawn, see the warnings: {join_words(undrawn)}." if undrawn else ""


def estimate_charts(record: Record, truth: Truth | None = None) -> Iterator[Chart]:
    """One forest for each metric: a group for each model, a row for each estimator."""
    looks, models = estimator_looks(record["estimators"]), record["models"]
    for metric, higher_is_better in record["metrics"].items():
        usable = usable_estimators(record, metric)
        if not usable:
            continue
        main = main_estimator(usable)
        legend = make_legend({estimator_label(name): looks[name] for name in usable})
        rows = [
            row for row in select(record["rows"], {"metric": metric}) if _is_usable(record, row)
        ]
        decimals = common_decimals(rows)
        groups = [
            ForestGroup(
                model,
                tuple(
                    _estimate_row(row, looks, decimals) for row in select(rows, {"model": model})
                ),
                (truth or {}).get((model, metric)),
            )
            for model in models
        ]
        value = {row["model"]: row["estimate"] for row in rows if row["estimator"] == main}
        order = sorted(
            range(len(models)), key=lambda model: value[models[model]], reverse=higher_is_better
        )
        groups, caption = keep_first(groups, order, rows_each=len(usable), noun="best models")
        caption = f"{caption} {_describe_undrawn(record, metric)}".strip()
        has_truth = any(group.truth is not None for group in groups)
        truth_entry = (LegendEntry("Truth", TRUTH, "rule"),) if has_truth else ()
        direction = describe_direction(higher_is_better=higher_is_better)
        label, words = metric_label(metric), describe_metric(metric)
        title = label if label.lower() == words.lower() else f"{label}, {words.lower()}"
        axis = ChartAxis(f"{label} ({direction}), {record['level']:.0%} intervals")
        yield Chart(title, Forest(groups, axis), (*legend, *truth_entry), caption)


def _estimate_row(row: Record, looks: Mapping[str, Look], decimals: int) -> ForestRow:
    label, interval = estimator_label(row["estimator"]), interval_of(row, "estimate")
    subject = f"{row['model']}, {label}"
    look = looks[row["estimator"]]
    return ForestRow.of_interval(label, look, interval, subject=subject, decimals=decimals)


def difference_charts(record: Record) -> Iterator[Chart]:
    """One forest for each metric: a group for each pair of models, a row for each estimator."""
    looks, differences = estimator_looks(record["estimators"]), orient_differences(record)
    corrects = any(map(corrects_selection, record["estimators"]))
    for metric, higher_is_better in record["metrics"].items():
        usable, label = usable_estimators(record, metric), metric_label(metric)
        if not usable:
            continue
        main = main_estimator(usable)
        rows = [row for row in select(differences, {"metric": metric}) if _is_usable(record, row)]
        by_main = sorted(rows, key=lambda row: row["estimator"] != main)
        pairs = list(dict.fromkeys((row["first"], row["second"]) for row in by_main))
        title, names = f"{label}: the leader minus each other", [f"{a} minus {b}" for a, b in pairs]
        if len(pairs) == 1:
            title, names = f"{label}: {names[0]}", [""]
        elif len({first for first, _ in pairs}) == 1:
            leader = pairs[0][0]
            title, names = f"{label}: {leader} minus each other", [f"minus {b}" for _, b in pairs]
        is_uncorrected = corrects and not any(map(corrects_selection, usable))
        claim = find_claim(record, metric)
        is_reliable = claim in ("plain", "verdict")
        is_reliable &= not (is_uncorrected or fails_item_check(record))
        shown = looks if is_reliable else {name: mute(look) for name, look in looks.items()}
        groups = [
            ForestGroup(name, _difference_rows(rows, pair, shown))
            for name, pair in zip(names, pairs, strict=True)
        ]
        distances = [_distance(group, estimator_label(main)) for group in groups]
        order = sorted(range(len(groups)), key=distances.__getitem__)
        groups, caption = keep_first(groups, order, rows_each=len(usable), noun="closest models")
        reason = ONLY_NAIVE if is_uncorrected else _explain_no_verdict(record, claim)
        parts = (reason, caption, _describe_undrawn(record, metric))
        caption = " ".join(part for part in parts if part)
        pair = pairs[0] if len(pairs) == 1 and is_reliable else None
        forest = difference_forest(groups, metric, pair=pair, higher_is_better=higher_is_better)
        yield Chart(title, forest, caption=caption)


def _explain_no_verdict(record: Record, claim: Claim) -> str:
    """Why the intervals of a chart of differences tell no models apart; empty if they do."""
    if claim == "adjusted":
        scope = record.get("adjusts_for", UNKNOWN_SCOPE)
        return f"Not a verdict: adjusted for {scope} only." if scope else "Not a verdict."
    if claim == "verdict" and fails_item_check(record):
        return NOT_A_VERDICT["unexplained"]
    return NOT_A_VERDICT.get(claim, "")


def _distance(group: ForestGroup, label: str) -> float:
    """How far two models are apart by the estimator with that label."""
    return next((abs(row.value) for row in group.rows if row.label == label), math.inf)


def orient_differences(record: Record) -> list[Record]:
    """The differences with one order of names: the leader by the main estimator comes first.

    Two models have the order of the first metric in all metrics.
    """
    oriented: list[Record] = []
    pairs: dict[frozenset[str], str] = {}
    for metric in record["metrics"]:
        main = main_estimator(usable_estimators(record, metric) or record["estimators"])
        rows = select(record["differences"], {"metric": metric})
        if len(record["models"]) > 2:
            pairs = {}
        for row in sorted(rows, key=lambda row: bool(row["estimator"] != main)):
            pairs.setdefault(frozenset((row["first"], row["second"])), row["first"])
        oriented += [
            row if pairs[frozenset((row["first"], row["second"]))] == row["first"] else _swap(row)
            for row in rows
        ]
    return oriented


def _swap(row: Record) -> Record:
    """The same difference, seen from the second model."""
    low, high = (None if end is None else 0.0 - end for end in (row["ci_high"], row["ci_low"]))
    return {
        **row,
        "first": row["second"],
        "second": row["first"],
        "difference": 0.0 - row["difference"],
        "ci_low": low,
        "ci_high": high,
    }


def _difference_rows(
    rows: Rows, pair: tuple[str, str], looks: Mapping[str, Look]
) -> tuple[ForestRow, ...]:
    decimals = common_decimals(rows)
    return tuple(
        ForestRow.of_interval(
            estimator_label(row["estimator"]),
            looks[row["estimator"]],
            interval_of(row, "difference"),
            subject=f"{pair[0]} minus {pair[1]}, {estimator_label(row['estimator'])}",
            decimals=decimals,
            with_sign=True,
        )
        for row in select(rows, {"first": pair[0], "second": pair[1]})
    )


def ratings_chart(ratings: Record, weighted: str) -> Chart:
    """The distribution of ratings in the log and, where there are weights, the weighted one.

    ``weighted`` is what the weighted one is called.
    """
    shares = [ratings["seen"]] + ([ratings["corrected"]] if ratings["corrected"] else [])
    groups = []
    for low, high, *values in zip(ratings["low"], ratings["high"], *shares, strict=True):
        is_single = low == high
        label = f"{low:g}" if is_single else format_tick(low)
        subject = f"rating {low:g}" if is_single else f"rating {low:.3g} to {high:.3g}"
        tip = f"{subject}: {format_share(values[0])} of the log"
        tip += f", {format_share(values[1])} {weighted}" if len(values) > 1 else ""
        groups.append(BarGroup(label, tuple(values), tip))
    legend = make_legend({"in the log": OBSERVED, weighted: CORRECTED}, "bar")[: len(shares)]
    bars = Bars(groups, tuple(entry.look.color for entry in legend), "rating", "share of ratings")
    title = "Ratings in the log" + (f" and {weighted}" if len(shares) > 1 else "")
    return Chart(title, bars, legend)


def weights_chart(shares: Record) -> Chart:
    """How many ratings have weights of each size, and their share of all weight."""
    columns = (shares[name] for name in ("low", "high", "rows", "held"))
    groups = []
    for low, high, rows, held in zip(*columns, strict=True):
        size = format_brief(low) if low == high else f"{format_brief(low)} to {format_brief(high)}"
        tip = f"weight {size}: {format_share(rows)} of ratings, {format_share(held)} of all weight"
        groups.append(BarGroup(format_brief(low), (rows, held), tip))
    legend = make_legend({"share of ratings": OBSERVED, "share of all weight": CORRECTED}, "bar")
    x_title = "weight 1/P" if shares["low"] == shares["high"] else "weight 1/P, from"
    bars = Bars(groups, (OBSERVED.color, CORRECTED.color), x_title, "share")
    return Chart("Sizes of the weights", bars, legend)


def _weight_notes(weights: Record) -> Iterator[str]:
    if weights["top_share"] is not None:
        yield f"The heaviest 1% of ratings have {format_share(weights['top_share'])} of all weight."
    if weights["n_cells"] and weights.get("is_balanced"):
        yield "The sum of the weights is the number of cells by construction, which shows nothing."
    elif weights["n_cells"]:
        ratio, z = format_share(weights["mass"] / weights["n_cells"]), weights.get("mass_z")
        distance = "" if z is None else f" ({abs(z):.1f} standard errors from 100%)"
        yield (
            f"The sum of the weights is {ratio} of the number of cells{distance}. "
            "More than 3 standard errors from 100% shows that the propensities are wrong; 100% "
            "does not show that they are right."
        )
    if weights["n_touched"]:
        yield f"The weight transform changed {count_noun(weights['n_touched'], 'weight')}."


def list_facts(record: Record) -> Iterator[tuple[str, str]]:
    """How the estimates were computed."""
    yield "logged ratings", f"{record['n_observed']:,}"
    yield "universe", format_universe(record["universe"])
    if record.get("n_dropped"):
        yield "bad rows dropped", f"{record['n_dropped']:,}"
    yield "intervals", f"{record['level']:.0%}, {record['intervals']}"
    if record.get("clusters"):
        yield "clusters", record["clusters"].removeprefix("Clusters: ")
    if record.get("propensity_effect"):
        yield "estimating the propensities", record["propensity_effect"]
    yield "estimators", ", ".join(map(estimator_label, record["estimators"]))
    if record.get("notes"):
        yield "notes", "; ".join(record["notes"])
