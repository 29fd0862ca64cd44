"""What a leaderboard says in words: who is best, who is close behind, and who has no number."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from unskew.metrics.metric import metric_label
from unskew.tables import count_noun, join_words

Record: TypeAlias = Mapping[str, Any]
BEST, TIED, WORSE, BASELINE = "best", "tied", "worse", "knows the test"
MARKS = {BEST: " *", TIED: " ="}
CLOSE_SHARE = 0.005
"""An error that exceeds the least one by at most this share of it is close behind."""
MOST_NAMES = 4
"""The headline names so many learners of a kind."""
FEW_DRAWS = 5
"""Of fewer draws, a t-test of all pairs can tell hardly any learners apart."""
FEW_SEEDS = 2
"""So few seeds do not show how settings vary."""
TIE_MEANING = "but need not be as good"


def write_headline(record: Record) -> tuple[tuple[str, bool], ...]:
    """Sentences on the first protocol and metric, each with whether it is the main one.

    ``record`` is the content of a leaderboard's JSON object. What is said of other learners is
    sorted by their errors.
    """
    first = record["rows"][0]
    protocol = first["protocol"]
    rows = [
        row
        for row in record["rows"]
        if (row["protocol"], row["metric"]) == (protocol, first["metric"])
        and row["verdict"] != BASELINE
    ]
    omitted = "".join(f" {text}" for text in _describe_omitted(record, protocol))
    of_all = f"{count_noun(len(rows), 'learner')} on {record['data']}, "
    subject = f"Of {of_all}"
    if is_incomplete(record):
        subject = f"After {format_seeds(record)}: of {of_all}"
    if not rows:
        return ((f"No learner on {record['data']} has a number.{omitted}", True),)
    best = next(row for row in rows if row["verdict"] == BEST)
    main = f"{best['learner']} has the least {metric_label(first['metric'])}, {best['mean']:.3f}."
    others = "".join(f" {text}" for text in _describe_others(rows, best["mean"]))
    return ((subject, False), (main, True), (others + omitted, False))


def _describe_others(rows: Sequence[Record], least: float) -> list[str]:
    """Learners that are surely but hardly behind, and those that are not told from the best."""
    close = [
        row
        for row in rows
        if row["verdict"] == WORSE and row["mean"] - least <= CLOSE_SHARE * abs(least)
    ]
    tied = [row for row in rows if row["verdict"] == TIED]
    sentences = []
    if close:
        limit = _round_up(max(row["mean"] - least for row in close))
        text = f"Behind by less than {limit:g}: {_list_errors(close)}."
        sentences.append((close[0]["mean"], text))
    if tied:
        text = (
            f"The test cannot tell these from it; they need not be as good: {_list_errors(tied)}."
        )
        sentences.append((tied[0]["mean"], text))
    return [text for _, text in sorted(sentences)]


def _list_errors(rows: Sequence[Record]) -> str:
    """``MF (0.882) and DR-JL (0.883)``, the first of many and the greatest error of the others."""
    names = [f"{row['learner']} ({row['mean']:.3f})" for row in rows]
    if len(names) > MOST_NAMES:
        shown = MOST_NAMES - 1
        names = [*names[:shown], f"{len(names) - shown} others (up to {rows[-1]['mean']:.3f})"]
    return join_words(names)


def _round_up(value: float) -> float:
    """The least number above ``value`` with one significant digit.

    >>> [_round_up(value) for value in (0.0012, 0.002, 0.0096)]
    [0.002, 0.003, 0.01]
    """
    if value <= 0:
        return 0.001
    digits = -math.floor(math.log10(value))
    return float(round(math.floor(round(value * 10.0**digits, 9) + 1) / 10.0**digits, digits))


def _describe_omitted(record: Record, protocol: str) -> Iterator[str]:
    """Learners without a number under a protocol, one sentence for each reason."""
    failures = [each for each in record["failures"] if each["protocol"] == protocol]
    for learners, _, reason in join_failures(failures):
        yield f"Without a number: {join_words(learners)} ({reason.rstrip('.')})."


def join_failures(failures: Sequence[Record]) -> list[tuple[list[str], str, str]]:
    """Learners that have no number for one reason, under which protocols, and that reason."""
    protocols: dict[tuple[str, str], list[str]] = {}
    for failure in failures:
        key = failure["learner"], failure["reason"]
        protocols.setdefault(key, []).append(failure["protocol"])
    learners: dict[tuple[str, str], list[str]] = {}
    for (learner, reason), names in protocols.items():
        learners.setdefault((join_words(names), reason), []).append(learner)
    return [(names, where, reason) for (where, reason), names in learners.items()]


def is_incomplete(record: Record) -> bool:
    """Whether the run was interrupted before the last seed."""
    return int(record.get("n_planned") or 0) > int(record["n_repeats"])


def count_seeds(record: Record) -> str:
    """``10``, or ``3 of 10`` if the run was interrupted."""
    n_repeats = record["n_repeats"]
    return f"{n_repeats} of {record['n_planned']}" if is_incomplete(record) else str(n_repeats)


def format_seeds(record: Record) -> str:
    """``10 seeds``, or ``3 of 10 seeds`` if the run was interrupted."""
    text = count_seeds(record)
    return f"{text} seed{'' if text == '1' else 's'}"


def list_cautions(record: Record) -> Iterator[str]:
    """What so few seeds or draws cannot show, and that a run was interrupted."""
    n_repeats, is_drawn = record["n_repeats"], record["paired_by"] == "draw"
    if is_incomplete(record):
        yield f"the run was interrupted: every number is of {format_seeds(record)}"
    if is_drawn and n_repeats < FEW_DRAWS:
        yield (
            f"with {count_noun(n_repeats, 'draw')} only huge differences can be told from chance: "
            "ties mean little"
        )
    elif not is_drawn and n_repeats <= FEW_SEEDS:
        yield (
            f"with {count_noun(n_repeats, 'seed')} the numbers do not show how chosen settings "
            "vary from seed to seed, and the intervals leave this out"
        )
