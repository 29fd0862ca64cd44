"""Which model is better: in a sentence, in the headline of an evaluation, and on its own page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from unskew.estimators import ESTIMATORS, corrects_selection, main_estimator, split_estimators
from unskew.metrics import metric_label
from unskew.report import PAGES
from unskew.report.charts import (
    Chart,
    ChartAxis,
    Forest,
    ForestGroup,
    ForestRow,
    Look,
    default_look,
)
from unskew.report.page import Headline, Page, Section, Tile, make_table
from unskew.report.text import (
    Record,
    choose_decimals,
    describe_direction,
    describe_estimators,
    describe_metric,
    estimator_label,
    format_brief,
    format_interval,
    format_number,
    format_share,
    interval_of,
    label_columns,
    select,
    to_sentence,
)
from unskew.tables import SMALL_P_VALUE, join_words

PAIRED = (
    "Both models are evaluated on the same ratings, and the difference is computed rating by "
    "rating."
)
NOT_CORRECTED = "; this is not corrected for selection."
UNKNOWN_SCOPE = "users, items or covariates"
"""What propensities without ratings depend on, in files that do not say it."""
POLICY_VALUE = "value"
"""What is compared of policies, whose estimators each have a condition of their own."""
FIELDS = ("difference", "std_error", "ci_low", "ci_high", "p_value")


def usable_estimators(record: Record, metric: str) -> list[str]:
    """Estimators whose values lie within the range of the metric and have intervals."""
    unusable = {tuple(name) for name in record.get("unusable", ())}
    return [name for name in record["estimators"] if (metric, name) not in unusable]


def estimator_looks(estimators: Sequence[str]) -> dict[str, Look]:
    """The declared look of each estimator, or a look by its position."""
    looks = {}
    for position, name in enumerate(estimators):
        traits = ESTIMATORS[name].traits if name in ESTIMATORS else {}
        if "color" in traits:
            shape, is_hollow = traits.get("marker", "circle"), traits.get("is_hollow", False)
            looks[name] = Look(traits["color"], shape, is_hollow=is_hollow)
        else:
            looks[name] = default_look(position + 1)
    return looks


def uses_weights(estimator: str) -> bool:
    """Whether an estimator uses propensities. Estimators of the caller are assumed to do so."""
    return estimator not in ESTIMATORS or ESTIMATORS[estimator].target.is_weighted


def opening(estimator: str, record: Record) -> str:
    """How a sentence on the estimates of this estimator begins: with what they depend on.

    Propensities that never saw a rating correct less, and the sentence says so.
    """
    if not corrects_selection(estimator):
        return f"{estimator_label(estimator)} says"
    if estimator in ESTIMATORS and ESTIMATORS[estimator].target.needs_random_test:
        return "If the test was drawn at random from all cells,"
    imputes = estimator in ESTIMATORS and ESTIMATORS[estimator].target.imputes
    if estimator in ESTIMATORS and ESTIMATORS[estimator].target.has_own_models:
        return "If one of the propensity models or one of the imputations is right,"
    if not uses_weights(estimator):
        return "If the imputed ratings are right,"
    if record.get("sees_ratings") is False:
        scope = record.get("adjusts_for", UNKNOWN_SCOPE)
        others = " and by imputed ratings" if imputes else ""
        return f"Adjusted for {scope} only{others}," if scope else f"Not adjusted{others},"
    if imputes:
        return "If the propensities or the imputed ratings are right,"
    condition = record.get("condition") or "if the propensities are right"
    return f"{condition[:1].upper()}{condition[1:]},"


def describe_comparison(row: Record, *, verb: str = "beats", with_interval: bool = True) -> str:
    """Which model is better and by how much, such as ``a beats b by 0.31 MAE [0.22, 0.40]``."""
    low, high, metric = row["ci_low"], row["ci_high"], metric_label(row["metric"])
    if low is None or high is None:
        difference = format_number(row["difference"], 3, with_sign=True)
        pair = f"{row['first']} minus {row['second']}"
        return f"{pair} is {difference} {metric}, without an interval"
    decimals = choose_decimals(low, high)
    if row["better"] is None:
        interval = format_interval(*interval_of(row, "difference"), decimals, with_sign=True)
        text = f"{row['first']} and {row['second']} cannot be told apart on {metric}"
        pair = f"{row['first']} minus {row['second']}"
        return f"{text}: {pair} is {interval}" if with_interval else text
    worse = row["second"] if row["better"] == row["first"] else row["first"]
    near, far = (format_number(end, decimals) for end in sorted((abs(low), abs(high))))
    distance = format_number(abs(row["difference"]), decimals)
    limits = f" [{near}, {far}]" if with_interval else ""
    return f"{row['better']} {verb} {worse} by {distance} {metric}{limits}"


def difference_forest(
    groups: Sequence[ForestGroup],
    metric: str,
    *,
    pair: tuple[str, str] | None = None,
    higher_is_better: bool = False,
) -> Forest:
    """Differences around zero. With one ``pair``, it says on which side each of them is better."""
    sides = pair[::-1] if pair is not None and higher_is_better else pair
    return Forest(
        groups, ChartAxis(f"difference of {metric_label(metric)}"), reference=0.0, sides=sides
    )


# The headline of an evaluation


@dataclass(frozen=True, slots=True)
class Finding:
    """What the estimates say, in parts of a sentence."""

    question: str
    """What is asked, such as ``which model is better``."""
    verdict: str
    """The answer of the main estimator with its interval, such as ``a beats b by 0.3 MAE``."""
    cautious: str
    """The same without the claim that one model is better than the other."""
    if_wrong: str
    """What can be otherwise if the propensities are wrong, such as ``the order can reverse``."""
    is_tie: bool = False
    flips_at: float | None = None
    """The factor of the odds of being logged at which the order flips, if it is small."""
    plain: str = ""
    """What the estimator without correction says, if there are both kinds."""
    others: str = ""
    """What other metrics say, if it is something else."""

    @property
    def remark(self) -> str:
        """What the estimator without correction says, in brackets."""
        return f" ({self.plain}.)" if self.plain else ""


Claim: TypeAlias = Literal[
    "unusable",
    "plain",
    "rejected",
    "adjusted",
    "transformed",
    "unchanged",
    "unexplained",
    "verdict",
]
"""What a headline can claim: nothing, because no estimate is usable; an uncorrected result;
nothing, because the propensities do not fit; an order for propensities without ratings; nothing,
because the weight transform decides it; that the correction changed nothing; nothing, because the
propensities leave out much; or a verdict."""


def find_claim(record: Record, metric: str) -> Claim:
    """How much the headline of an evaluation can claim about this metric."""
    estimators = usable_estimators(record, metric)
    if not estimators:
        return "unusable"
    if split_estimators(estimators)[1] is None:
        return "plain"
    if not uses_weights(main_estimator(estimators)):
        return "verdict"
    if not fits_universe(record):
        return "rejected"
    if record.get("sees_ratings") is False:
        return "adjusted"
    if record.get("transform_effect"):
        return "transformed"
    if record.get("no_correction"):
        return "unchanged"
    return "unexplained" if record.get("unexplained") else "verdict"


def fails_item_check(record: Record) -> bool:
    """Whether item totals speak against the propensities."""
    return not (record.get("item_check") or {"passed": True})["passed"]


def names_unexplained(record: Record, claim: Claim) -> bool:
    """Whether the headline says what the propensities leave out."""
    return bool(record.get("unexplained")) and claim in ("adjusted", "unexplained")


def find_flip(record: Record, metric: str) -> float | None:
    """The small odds error at which the order in the headline flips; None if it has none."""
    if find_claim(record, metric) != "verdict" or len(record["models"]) == 1:
        return None
    return _make_pair_finding(record, metric).flips_at


def is_tied(record: Record, metric: str) -> bool:
    """Whether the headline compares two models that are not told apart."""
    return len(record["models"]) > 1 and _make_pair_finding(record, metric).is_tie


def write_headline(record: Record, metric: str) -> Headline:
    """The verdict with its condition, or that there is none; first corrected, then naive."""
    claim = find_claim(record, metric)
    if claim == "unusable":
        return ((f"No estimate of {metric_label(metric)} can be trusted; see the warnings.", True),)
    is_one = len(record["models"]) == 1
    finding = _make_model_finding(record, metric) if is_one else _make_pair_finding(record, metric)
    start = opening(main_estimator(usable_estimators(record, metric)), record)
    if claim == "plain":
        return (f"{start} {finding.verdict}", False), (NOT_CORRECTED, True)
    first, second = f"{start} {finding.verdict}.", f"{finding.others}{finding.remark}"
    if claim == "rejected":
        share = format_share(record["weights"]["mass"] / record["weights"]["n_cells"])
        first = f"This evaluation cannot say {finding.question}: "
        first += "the propensities do not fit this log."
        second = f" Their weights add up to {share} of the number of cells instead of about 100%."
    elif claim == "adjusted":
        first = f"This log cannot say {finding.question} over all users and items."
        equal = "Not told apart does not mean equal. " if finding.is_tie else ""
        second = (
            f" {start} {finding.cautious}.{finding.others} {equal}If people rate what they like, "
            f"or if the propensities leave out anything else, {finding.if_wrong}.{finding.remark}"
        )
        if names_unexplained(record, claim):
            first = f"{first[:-1]}. A check failed: {record['unexplained']}."
            second = " And the propensities never saw a rating: they cannot tell whether people "
            second += "rate what they like."
    elif claim == "transformed":
        first = f"This evaluation cannot say {finding.question}: the weight transform decides it."
        second = (
            f" With it, {finding.cautious}. Without it, "
            f"{_describe_untransformed(record['transform_effect'])}.{finding.remark}"
        )
    elif claim == "unchanged":
        first = (
            f"This log cannot say {finding.question}: the correction, which should remove "
            "self-selection, changed almost nothing."
        )
        second = (
            f" {record['no_correction']}. With these propensities, {finding.cautious}."
            f"{finding.others} Unless the last reason is the right one, {finding.if_wrong}."
            f"{finding.remark}"
        )
    elif claim == "unexplained":
        first = f"This evaluation cannot say {finding.question}: a check failed."
        second = (
            f" {to_sentence(record['unexplained'])} What the propensities leave out can have to do "
            f"with the errors of the models, and then {finding.if_wrong}."
        )
    elif fails_item_check(record):
        second = f" A check speaks against this condition.{finding.remark}"
    elif finding.flips_at is not None:
        first = (
            f"{start} {finding.cautious}. The order could flip if the odds of being logged were "
            f"wrong by a small factor, {finding.flips_at:.3g} or more, in the worst case for "
            "the leader."
        )
    return (first, True), (second, False)


def _describe_untransformed(effect: Record) -> str:
    """What the estimates say without the weight transform."""
    low, high = effect["ci_low"], effect["ci_high"]
    if effect["second"] is None:
        number = format_interval(effect["estimate"], low, high, choose_decimals(low, high))
        return f"{effect['first']} has {metric_label(effect['metric'])} {number}"
    return describe_comparison({**effect, "difference": effect["estimate"]}, verb="is ahead of")


def fits_universe(record: Record) -> bool:
    """Whether the weights add up to the number of cells, by the test of the evaluation."""
    weights = record["weights"] or {}
    return bool(weights.get("fits_universe", True))


def _make_model_finding(record: Record, metric: str) -> Finding:
    rows = {row["estimator"]: row for row in select(record["rows"], {"metric": metric})}
    plain, corrected = split_estimators(usable_estimators(record, metric))
    row = rows[corrected or plain]
    label, model = metric_label(metric), record["models"][0]
    limits = row["ci_low"], row["ci_high"]
    decimals = 3 if None in limits else choose_decimals(*limits)
    verdict = f"{model} has {label} {format_interval(*interval_of(row, 'estimate'))}"
    value = ""
    if plain is not None:
        number = format_number(rows[plain]["estimate"], decimals)
        value = f"{_name_plain(plain)} is {number}"
    return Finding(
        question=f"what {label} {model} has",
        verdict=verdict,
        cautious=verdict,
        if_wrong="this value can be wrong",
        plain=value,
    )


def _make_pair_finding(record: Record, metric: str) -> Finding:
    """The best model by the main estimator against the rival of :func:`_find_rival`."""
    estimators = usable_estimators(record, metric)
    plain, corrected = split_estimators(estimators)
    main = main_estimator(estimators)
    best = leading_model(record, metric, main)
    rival = _find_rival(record, metric, best)
    rows = {
        row["estimator"]: row
        for row in select(record["differences"], {"metric": metric})
        if {row["first"], row["second"]} == {best, rival}
    }
    row = rows[main]
    is_tie = row["better"] is None
    is_fragile = {best, rival} == set(record.get("fragile_pair") or ())
    others = "; ".join(_list_other_verdicts(record, metric, row))
    return Finding(
        question="which model is better",
        verdict=_describe_tie(record, row) if is_tie else describe_comparison(row),
        cautious=describe_comparison(row, verb="is ahead of"),
        flips_at=record.get("flips_at") if is_fragile else None,
        if_wrong="either can be better, by more than this interval says"
        if is_tie
        else "the order can also be the other way round, or the difference much larger",
        is_tie=is_tie,
        plain=""
        if plain is None or corrected is None
        else _describe_plain(rows[plain], row, higher_is_better=record["metrics"][metric]),
        others=f" But {others}." if others else "",
    )


def _describe_tie(record: Record, row: Record) -> str:
    """Two models that are not told apart: how far they can be apart, or that data are too few."""
    low, high = row["ci_low"], row["ci_high"]
    if low is None or high is None:
        return describe_comparison(row)
    if [row["metric"], row["estimator"]] in record.get("few_cells", ()):
        text = describe_comparison(row, with_interval=False)
        return f"{text}, because this log is too small: a few ratings decide the estimates"
    decimals = choose_decimals(low, high)
    below, above = (format_number(max(end, 0.0), decimals) for end in (-low, high))
    better, worse = (above, below) if record["metrics"][row["metric"]] else (below, above)
    return (
        f"{describe_comparison(row)}. {row['first']} can be better by up to {better}, and "
        f"{row['second']} by up to {worse}"
    )


def _describe_plain(row: Record, corrected: Record, *, higher_is_better: bool) -> str:
    """The verdict without correction. It never says that it confirms the corrected one.

    It says that the correction moves towards the other model if the difference without
    correction lies outside the corrected interval.
    """
    name = _name_plain(row["estimator"])
    if row["better"] is None:
        return f"{name} cannot tell them apart on {metric_label(row['metric'])}"
    limits = row["ci_low"], row["ci_high"]
    distance = format_number(abs(row["difference"]), choose_decimals(*limits))
    if corrected["better"] not in (None, row["better"]):
        return f"{name} says the opposite: {row['better']}, by {distance}"
    text = f"{name} says {row['better']}, by {distance}"
    before = row["difference"] if row["first"] == corrected["first"] else -row["difference"]
    low, high = corrected["ci_low"], corrected["ci_high"]
    if low is None or high is None or low <= before <= high:
        return text
    is_first = (corrected["difference"] > before) == higher_is_better
    favoured = corrected["first" if is_first else "second"]
    return (
        text if favoured == row["better"] else f"{text}; the correction moves it towards {favoured}"
    )


def _name_plain(estimator: str) -> str:
    return "The plain average of the log" if estimator == "naive" else estimator_label(estimator)


def _list_other_verdicts(record: Record, metric: str, headline: Record) -> Iterator[str]:
    """The other metrics that give another verdict with the same estimator."""
    metrics: dict[str, list[str]] = {}
    best, pair = headline["first"], {headline["first"], headline["second"]}
    for other in record["metrics"]:
        if other == metric or headline["estimator"] not in usable_estimators(record, other):
            continue
        rows = select(record["differences"], {"metric": other, "estimator": headline["estimator"]})
        row = next(
            (row for row in rows if row["second"] == best),
            next((row for row in rows if {row["first"], row["second"]} == pair), None),
        )
        if row is not None and row["better"] != headline["better"]:
            rival = next(name for name in (row["first"], row["second"]) if name != best)
            verdict = f"{best} and {rival} cannot be told apart"
            if row["better"] is not None:
                verdict = f"{row['better']} is ahead"
            metrics.setdefault(verdict, []).append(metric_label(other))
    for verdict, labels in metrics.items():
        yield f"by {join_words(labels)}, {verdict}"


def leading_model(record: Record, metric: str, estimator: str) -> str:
    """The model with the best estimate of a metric by an estimator."""
    return str(
        select(record["differences"], {"metric": metric, "estimator": estimator})[0]["first"]
    )


def _find_rival(record: Record, metric: str, best: str) -> str:
    """The leader without correction, if it is another model; else the second best model."""
    estimators = usable_estimators(record, metric)
    plain, _ = split_estimators(estimators)
    if plain is not None and (leader := leading_model(record, metric, plain)) != best:
        return leader
    rows = select(
        record["differences"], {"metric": metric, "estimator": main_estimator(estimators)}
    )
    return str(min(rows, key=lambda row: abs(row["difference"]))["second"])


# The page of one comparison


def _is_doubtful(premise: Record) -> bool:
    """Whether the propensities do not fit the log, or cannot depend on ratings."""
    return bool(premise.get("doubt")) or premise.get("sees_ratings") is False


def _open_comparison(record: Record) -> str:
    """How the sentence on a comparison begins; with doubts about its propensities first."""
    premise = record.get("premise")
    start = opening(record["estimator"], premise or {})
    if premise and premise["doubt"]:
        return f"Not reliable: {premise['doubt']}. {start}"
    if record["metric"] == POLICY_VALUE:
        return f"If the condition of {estimator_label(record['estimator'])} holds,"
    return start


@PAGES.declare(
    "comparison", label="Comparison", summary="Two models compared by one metric and estimator."
)
def build_comparison_page(record: Record) -> Page:
    first, second = record["first"], record["second"]
    metric, estimator = record["metric"], record["estimator"]
    title, higher_is_better = f"{first} minus {second}", record["higher_is_better"]
    row = ForestRow.of_interval(
        estimator_label(estimator),
        estimator_looks([estimator])[estimator],
        interval_of(record, "difference"),
        subject=title,
        with_sign=True,
    )
    premise = record.get("premise") or {}
    forest = difference_forest(
        [ForestGroup("", (row,))],
        metric,
        pair=None if _is_doubtful(premise) else (first, second),
        higher_is_better=higher_is_better,
    )
    headings = {name: name.replace("_", " ") for name in FIELDS}
    numbers = make_table("The difference", label_columns([record], headings))
    direction = describe_direction(higher_is_better=higher_is_better)
    p_value = format_brief(record["p_value"])
    if record["p_value"] is not None and record["p_value"] < SMALL_P_VALUE:
        p_value = f"< {SMALL_P_VALUE}"
    texts = tuple(record.get("warnings", ()))
    verb = "is ahead of" if _is_doubtful(premise) else "beats"
    verdict = f"{_open_comparison(record)} {describe_comparison(record, verb=verb)}."
    if texts:
        verdict = f"No verdict on {first} and {second}: {metric_label(metric)} by "
        verdict += f"{estimator_label(estimator)} cannot be used here."
    return Page(
        ((verdict, True),),
        f"{describe_metric(metric)}, {direction}. {describe_estimators([estimator])}",
        (
            Tile(format_number(record["difference"], 3, with_sign=True), "difference", title),
            Tile(format_brief(record["std_error"]), "standard error"),
            Tile(p_value, "p-value", "for no difference"),
        ),
        warnings=texts,
        sections=(Section("The difference", PAIRED, (Chart(title, forest),), (numbers,)),),
        facts=(
            ("metric", metric),
            ("estimator", estimator),
            ("intervals", f"{record['level']:.0%}"),
        ),
    )


@PAGES.declare(
    "pairwise_comparison",
    label="All pairs",
    summary="All pairs of models compared by one metric and estimator.",
)
def build_pairwise_page(record: Record) -> Page:
    metric, estimator = record["metric"], record["estimator"]
    leader, *ties = record["best"]
    verb = "is ahead among" if _is_doubtful(record.get("premise") or {}) else "is the best of"
    verdict = f"{_open_comparison(record)} {leader} {verb} {len(record['models'])} models by "
    verdict += metric_label(metric)
    verdict += f"; {join_words(ties)} cannot be told apart from it." if ties else "."
    texts = tuple(record.get("warnings", ()))
    if texts:
        verdict = f"No verdict: {metric_label(metric)} by {estimator_label(estimator)} cannot be "
        verdict += "used for all of these models."
    look = estimator_looks([estimator])[estimator]
    rows = tuple(
        ForestRow.of_interval(
            f"{pair['first']} minus {pair['second']}",
            look,
            interval_of(pair, "difference"),
            subject=f"{pair['first']} minus {pair['second']}",
            with_sign=True,
        )
        for pair in record["pairs"]
    )
    forest = difference_forest([ForestGroup("", rows)], metric)
    shown = [{**pair, "better": pair["better"] or "not told apart"} for pair in record["pairs"]]
    names = ("first", "second", *FIELDS[:1], *FIELDS[2:], "p_adjusted", "better")
    numbers = make_table(
        "All pairs", label_columns(shown, {name: name.replace("_", " ") for name in names})
    )
    direction = describe_direction(higher_is_better=record["higher_is_better"])
    text = (
        f"{PAIRED} P-values are adjusted for {len(rows)} pairs by Holm's method. Intervals are for "
        "each pair alone."
    )
    return Page(
        ((verdict, True),),
        f"{describe_metric(metric)}, {direction}. {describe_estimators([estimator])}",
        (),
        warnings=texts,
        sections=(Section("Differences", text, (Chart("Differences", forest),), (numbers,)),),
        facts=(
            ("metric", metric),
            ("estimator", estimator),
            ("intervals", f"{record['level']:.0%}"),
        ),
    )
