"""The headline of an evaluation: which model is better, and on what that verdict depends."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from unskew.estimators.choice import main_estimator, split_estimators
from unskew.metrics import metric_label
from unskew.report.comparison import (
    describe_comparison,
    opening,
    usable_estimators,
    uses_weights,
)
from unskew.report.page import Headline
from unskew.report.rows import Record, interval_of, select
from unskew.report.text import (
    choose_decimals,
    estimator_label,
    format_interval,
    format_number,
    format_share,
    join_words,
)

NOT_CORRECTED = "; this is not corrected for selection."


@dataclass(frozen=True, slots=True)
class Finding:
    """What the estimates say, in parts of a sentence."""

    question: str
    """What is asked, such as ``which model is better``."""
    verdict: str
    """The answer of the main estimator with its interval, such as ``a beats b by 0.3 MAE``."""
    cautious: str
    """The same without the claim that one model is better than the other."""
    doubtful: str
    """The same without an interval."""
    doubt: str
    """What cannot be trusted if the propensities do not fit the log, as a clause."""
    reversal: str
    """What can happen if people rate what they like."""
    plain: str = ""
    """What the estimator without correction says, if there are both kinds."""
    others: str = ""
    """What other metrics say, if it is something else."""


def write_headline(record: Record, metric: str) -> Headline:
    """The verdict with its condition, or that there is none; first corrected, then naive."""
    estimators = usable_estimators(record, metric)
    if not estimators:
        return ((f"No estimate of {metric_label(metric)} can be trusted; see the warnings.", True),)
    is_one = len(record["models"]) == 1
    finding = _find_of_model(record, metric) if is_one else _find_of_pair(record, metric)
    main = main_estimator(estimators)
    start = opening(main, record)
    if split_estimators(estimators)[1] is None:
        return (f"{start} {finding.verdict}", False), (NOT_CORRECTED, True)
    if uses_weights(main) and not fits_universe(record):
        share = format_share(record["weights"]["mass"] / record["weights"]["n_cells"])
        first = (
            "Not reliable: the propensities do not fit this log (the weights add up to "
            f"{share} of the cells)."
        )
        second = f" With them, {finding.doubtful}; {finding.doubt}.{finding.others}"
    elif uses_weights(main) and record.get("sees_ratings") is False:
        first = f"This log cannot say {finding.question} over all users and items."
        second = (
            f" {start} {finding.cautious}; if people rate what they like, this {finding.reversal}."
            f"{finding.others}"
        )
    else:
        first = f"{start} {finding.verdict}."
        second = finding.others + (f" ({finding.plain}.)" if finding.plain else "")
    return (first, True), (second, False)


def fits_universe(record: Record) -> bool:
    """Whether the weights add up to the number of cells, by the test of the evaluation."""
    weights = record["weights"] or {}
    return bool(weights.get("fits_universe", True))


def _find_of_model(record: Record, metric: str) -> Finding:
    rows = {row["estimator"]: row for row in select(record["rows"], {"metric": metric})}
    plain, corrected = split_estimators(usable_estimators(record, metric))
    row = rows[corrected or plain]
    label, model = metric_label(metric), record["models"][0]
    limits = row["ci_low"], row["ci_high"]
    decimals = 3 if None in limits else choose_decimals((limits[1] - limits[0]) / 2)
    verdict = f"{model} has {label} {format_interval(*interval_of(row, 'estimate'))}"
    value = ""
    if plain is not None:
        number = format_number(rows[plain]["estimate"], decimals)
        value = f"{_name_plain(plain)} is {number}"
    return Finding(
        f"what {label} {model} has",
        verdict,
        verdict,
        f"{model} has {label} {format_number(row['estimate'], decimals)}",
        "neither the value nor the interval can be trusted",
        "can be wrong",
        value,
    )


def _find_of_pair(record: Record, metric: str) -> Finding:
    """The leading model by the main estimator against its closest rival."""
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
    others = "; ".join(_list_other_verdicts(record, metric, row))
    doubt = "neither the size nor the interval can be trusted"
    return Finding(
        "which model is better",
        describe_comparison(row),
        describe_comparison(row, verb="is ahead of"),
        describe_comparison(row, verb="is ahead of", with_interval=False),
        "this cannot be trusted" if is_tie else doubt,
        "can change" if is_tie else "can reverse",
        "" if plain is None or corrected is None else _describe_plain(rows[plain], row),
        f" But {others}." if others else "",
    )


def _describe_plain(row: Record, corrected: Record) -> str:
    name = _name_plain(row["estimator"])
    if row["better"] is None:
        return f"{name} cannot tell them apart"
    limits = row["ci_low"], row["ci_high"]
    distance = format_number(abs(row["difference"]), choose_decimals((limits[1] - limits[0]) / 2))
    winner = "the same" if row["better"] == corrected["better"] else row["better"]
    return f"{name} says {winner}, by {distance}"


def _name_plain(estimator: str) -> str:
    return "The plain average" if estimator == "naive" else estimator_label(estimator)


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
