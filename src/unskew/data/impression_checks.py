"""What makes a log of impressions impossible (errors), and what makes it doubtful (reports)."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from unskew.data.cells import find_duplicates, hash_cells
from unskew.data.checks import require_rows
from unskew.data.ids import Ids, format_id
from unskew.data.propensities import SMALLEST
from unskew.data.result import Result
from unskew.errors import BadImpressionError, BadPropensityError, UnskewWarning, UsageError
from unskew.settings import Instance
from unskew.tables import count_noun, text_table
from unskew.types import BoolVector, IntVector, Vector

if TYPE_CHECKING:
    from unskew.data.impressions import Impressions

MAX_POSITION = 1 << 20
"""A larger position is a timestamp or an id, not a place in a list."""


REMEDIES = {
    "request": "Give each request an id.",
    "user": "If the user of a request is unknown, take the id of the request for that of the user.",
    "item": "Leave out all rows of such requests, which need all their slots.",
    "position": "The top position is 1: add 1 if yours start from 0. Do not leave rows out: a "
    "request needs all its slots.",
    "reward": "An item without a click has the reward 0: fill missing rewards with 0. Do not leave "
    "such rows out.",
    "probability": "Divide percentages by 100. If it was not logged, leave out all rows of the "
    "request: it needs all its slots.",
}
"""What to do about a bad value, by the role of its column."""


def check_positions(position: Vector, *, is_stated: bool) -> IntVector:
    """Positions as int32; an error unless they are whole numbers from 1 on."""
    with np.errstate(invalid="ignore"):
        is_valid = (position >= 1) & (position <= MAX_POSITION) & (position == np.floor(position))
    if is_stated and not is_valid.all():
        row = int(is_valid.argmin())
        remedy = "Drop those rows: an item without a position was not shown."
        if position[row] == 0:
            remedy = "The top position is 1: add 1 if yours start from 0."
        raise BadImpressionError(
            f"{int((~is_valid).sum())} of {is_valid.size} positions are not whole numbers from 1 "
            f"on; the first is {position[row]:g} at row {row}.",
            parameter="position",
            value=float(position[row]),
            where=f"row {row}",
            remedy=remedy,
        )
    return position.astype(np.int32)


def check_rewards(shown: Impressions) -> None:
    """Raise an error unless every reward is a finite number."""
    require_rows(
        np.isfinite(shown.reward),
        shown.reward,
        "rewards are missing or not finite",
        shown.name_row,
        parameter="reward",
        error_type=BadImpressionError,
        remedy=REMEDIES["reward"],
    )


PROBABILITY_KINDS = (
    "Pass 'step' (the item given those above it), 'marginal' (the item at this position over all "
    "slates), 'slate' (the whole slate), or 'product' (slots are filled independently)."
)
"""What to do if it is unknown what a probability means."""


def check_probabilities(shown: Impressions) -> None:
    """Raise an error unless probabilities are in (0, 1] and the caller says what they are."""
    if shown.probability is None:
        if shown.probability_is is not None:
            raise UsageError(
                "`probability_is` is given, but the log has no `probability`.",
                parameter="probability_is",
                value=shown.probability_is,
                remedy="Name the column with `probability=...`.",
            )
        return
    with np.errstate(invalid="ignore"):
        is_valid = (shown.probability >= SMALLEST) & (shown.probability <= 1)
        are_logarithms = bool((shown.probability <= 0).all())
    if are_logarithms:
        remedy = "If they are logarithms of probabilities, take their exponentials."
    elif (shown.probability > 1).any():
        remedy = "Divide percentages by 100."
    else:
        remedy = "An item that was shown had a probability above 0: check how it was logged."
    require_rows(
        is_valid,
        shown.probability,
        "probabilities are missing or outside (0, 1]",
        shown.name_row,
        parameter="probability",
        remedy=f"{remedy} If one was not logged, leave out all rows of the request, which needs "
        "all its slots.",
        error_type=BadPropensityError,
    )
    if shown.probability_is is None and shown.n_slots > 1:
        raise UsageError(
            f"requests show up to {shown.n_slots} items, so `probability_is` must say what "
            "`probability` is the probability of.",
            parameter="probability_is",
            remedy=PROBABILITY_KINDS,
        )


def check_requests(shown: Impressions) -> None:
    """Raise an error if a request has two users."""
    is_other = shown.user_of_request[shown.request] != shown.user
    if is_other.any():
        row = int(is_other.argmax())
        request = shown.request[row]
        pair = shown.users[shown.user[row]], shown.users[shown.user_of_request[request]]
        raise BadImpressionError(
            f"{_count(np.unique(shown.request[is_other]).size, 'request', 'belong')} to two users; "
            f"the first is {format_id(shown.requests[request])} with the users "
            f"{format_id(pair[0])} and {format_id(pair[1])}, at row {row}.",
            parameter="request",
            where=f"row {row}",
            remedy="Make the request ids unique, for example by adding the user and the time.",
        )


def drop_copies(shown: Impressions) -> Impressions:
    """The log without rows that repeat an earlier row in every column, with a warning."""
    slot = shown.request.astype(np.int64) * shown.n_slots + (shown.position - 1)
    n_repeated, _, _ = find_duplicates(slot)
    if n_repeated == 0:
        return shown
    numbers = [shown.reward, *shown.other.values()]
    numbers += [] if shown.probability is None else [shown.probability]
    table = np.column_stack([slot.astype(np.float64), shown.item, *numbers])
    _, first = np.unique(table.view(np.int64), axis=0, return_index=True)  # NaN equals NaN
    n_copies = len(shown) - first.size
    if n_copies == 0:
        return shown
    is_copy = np.ones(len(shown), dtype=bool)
    is_copy[first] = False
    row = int(is_copy.argmax())
    warnings.warn(
        UnskewWarning(
            f"dropped copies: {_count(n_copies, 'row', 'repeat')} an earlier row in every column; "
            f"the first is {shown.name_row(row)}.",
            where=shown.name_row(row),
            remedy="Check whether a join duplicated them.",
        ),
        stacklevel=4,
    )
    rows = np.flatnonzero(~is_copy)
    arrays = ("request", "user", "item", "position", "reward", "probability")
    changes: dict[str, Any] = {
        name: getattr(shown, name)[rows] for name in arrays if getattr(shown, name) is not None
    }
    other = {name: column[rows] for name, column in shown.other.items()}
    return shown._replace_valid(**changes, other=other, n_copies=n_copies)


def check_slots(shown: Impressions, *, is_position_stated: bool) -> None:
    """Raise an error if a slot shows two items, or (unless allowed) a slate one item twice."""
    request = shown.request.astype(np.int64)
    n_repeated, row, earlier = find_duplicates(request * shown.n_slots + (shown.position - 1))
    if n_repeated and not is_position_stated:
        raise BadImpressionError(
            f"{_count(n_repeated, 'row', 'belong')} to a request that already shows an item, but "
            f"the log has no positions; the first is {shown.name_row(row)}, after row {earlier}.",
            parameter="position",
            where=f"row {row}",
            remedy="Name the column of positions with `position=...`.",
        )
    if n_repeated:
        raise BadImpressionError(
            f"{_count(n_repeated, 'row', 'show')} a second item at a position of the request; "
            f"the first is {shown.name_row(row)}, after row {earlier}.",
            parameter="position",
            where=f"row {row}",
            remedy="A position shows one item: check the request ids, or a join of one to many.",
        )
    if shown.repeats:
        return
    n_repeated, row, earlier = find_duplicates(request * shown.n_items + shown.item)
    if n_repeated:
        raise BadImpressionError(
            f"{_count(n_repeated, 'row', 'show')} an item again in the same request; the first is "
            f"{shown.name_row(row)}, after row {earlier}.",
            parameter="item",
            where=f"row {row}",
            remedy="Pass `repeats=True` if a slate may show an item more than once.",
        )


def _count(number: int, noun: str, verb: str) -> str:
    """``1 row shows``, or ``2 rows show``."""
    return f"{count_noun(number, noun)} {verb}{'s' if number == 1 else ''}"


def check_clicks(
    clicked: npt.NDArray[np.int64], shown: npt.NDArray[np.int64], request: Ids, item: Ids
) -> None:
    """Raise an error if an item was clicked that the request did not show."""
    is_lost = ~np.isin(clicked, shown)
    if is_lost.any():
        row = int(is_lost.argmax())
        raise BadImpressionError(
            f"{_count(int(is_lost.sum()), 'click', 'belong')} to no impression, of {is_lost.size}; "
            f"the first is request {format_id(request[row])}, item {format_id(item[row])}, at row "
            f"{row} of the clicks.",
            parameter="clicks",
            where=f"row {row} of the clicks",
            remedy="Add the missing impressions, or drop those clicks.",
        )


@dataclass(frozen=True, slots=True)
class ImpressionFinding:
    """Something that is possible but doubtful: how often it occurs, and one example."""

    check: str
    count: int
    example: str
    meaning: str
    prevents_intervals: bool = False
    """Whether values of policies from such a log have no interval."""


@dataclass(frozen=True, slots=True, repr=False)
class ImpressionReport(Result):
    """What is doubtful about a log of impressions, whose impossible rows were refused before."""

    kind: ClassVar[str] = "impression_report"
    log: str
    findings: tuple[ImpressionFinding, ...]
    backend: str | None = None

    def to_columns(self) -> dict[str, list[Any]]:
        """Check, count, example and meaning of each finding."""
        rows = [asdict(finding) for finding in self.findings]
        names = ("check", "count", "example", "meaning")
        return {name: [row[name] for row in rows] for name in names}

    def to_record(self) -> dict[str, Any]:
        """The log in words, and its findings."""
        return {"log": self.log, "findings": [asdict(finding) for finding in self.findings]}

    def __repr__(self) -> str:
        if not self.findings:
            return f"{self.log}\nno findings"
        return f"{self.log}\n{text_table(self.to_columns())}"


def validate(shown: Impressions) -> ImpressionReport:
    """List what is doubtful about a log of impressions: counts, and one example each.

    Impossible rows are errors when the log is built. Whether the mean weights of a target policy
    are 1, as they must be, is on every result of :func:`unskew.evaluate_policies`.

    Examples
    --------
    >>> from unskew.simulation.impressions import simulate_impressions
    >>> report = validate(simulate_impressions(50, n_items=4, n_slots=2, random_state=0).log)
    >>> print(str(report).splitlines()[-1])
    no findings
    """
    from unskew.data.impressions import Impressions

    Instance(Impressions, remedy="Build one with Impressions.from_frame(frame).")("shown", shown)
    return ImpressionReport(repr(shown), tuple(_list_findings(shown)), shown.backend)


def _list_findings(shown: Impressions) -> Iterator[ImpressionFinding]:
    yield from _report_gaps(shown)
    yield from _find_different_sizes(shown)
    yield from _find_unequal_prefixes(shown)
    yield from _find_other_kind(shown)
    yield from _find_constant_probability(shown)
    yield from _find_constant_reward(shown)
    if shown.n_copies:
        yield ImpressionFinding(
            "copies of rows",
            shown.n_copies,
            "",
            "Rows that repeat another in every column were dropped.",
        )


def _report_gaps(shown: Impressions) -> Iterator[ImpressionFinding]:
    has_gap = find_gaps(shown)
    if has_gap.any():
        request = int(has_gap.argmax())
        positions = np.sort(shown.position[shown.request == request]).tolist()
        yield ImpressionFinding(
            "positions with gaps",
            int(has_gap.sum()),
            f"request {format_id(shown.requests[request])}: {positions}",
            "Slots are missing, perhaps removed by a filter. 'ips', 'snips', 'dr', 'rips', "
            "'snrips' and 'cascade-dr' need every slot above a shown item.",
        )


def find_gaps(shown: Impressions) -> BoolVector:
    """Whether the positions of each request are other than 1, 2, ..., n."""
    last = np.zeros(shown.n_requests, dtype=np.int32)
    np.maximum.at(last, shown.request, shown.position)
    return np.asarray(last != shown.slate_size)


def _find_different_sizes(shown: Impressions) -> Iterator[ImpressionFinding]:
    sizes, counts = np.unique(shown.slate_size, return_counts=True)
    if sizes.size > 1:
        listed = ", ".join(
            f"{count:,} of {size}" for size, count in zip(sizes[:4], counts[:4], strict=True)
        )
        yield ImpressionFinding(
            "slates of different sizes",
            int(counts.sum() - counts.max()),
            listed + (", ..." if sizes.size > 4 else ""),
            "Policies are compared over the slots that the log has.",
        )


def _find_unequal_prefixes(shown: Impressions) -> Iterator[ImpressionFinding]:
    """Step probabilities of one user that differ although the items shown so far are equal."""
    if shown.probability is None or shown.probability_is != "step" or find_gaps(shown).any():
        return
    prefix = hash_cells(shown.user_of_request.astype(np.int64), np.uint64(7))
    for slot in range(shown.n_slots):
        rows = shown.slots[:, slot]
        (request,) = np.nonzero(rows >= 0)
        item = shown.item[rows[request]].astype(np.int64)
        prefix[request] = hash_cells(item, np.uint64(slot)) ^ (prefix[request] * np.uint64(31))
        order = np.lexsort((shown.probability[rows[request]], prefix[request]))
        key, p = prefix[request][order], shown.probability[rows[request]][order]
        differs = (key[1:] == key[:-1]) & (np.abs(p[1:] - p[:-1]) > 1e-9)
        if differs.any():
            pair = order[int(differs.argmax()) : int(differs.argmax()) + 2]
            first, second = (int(rows[request[each]]) for each in pair)
            yield ImpressionFinding(
                "unequal step probabilities",
                int(differs.sum()),
                f"{shown.name_row(first)} and {shown.name_row(second)}: "
                f"{shown.probability[first]:g}, {shown.probability[second]:g}",
                "The same user saw the same items so far: right only if the logging policy "
                "changed between the requests.",
            )
            return


def _find_other_kind(shown: Impressions) -> Iterator[ImpressionFinding]:
    """Whether the probabilities contradict ``probability_is``, such as marginal against step."""
    from unskew.data.probability_kind import check_kind

    check = check_kind(shown)
    if check is not None and check.is_contradicted:
        yield ImpressionFinding(
            "probabilities of another kind",
            len(shown),
            f"stated {check.stated}, found {check.other}",
            check.describe(),
            prevents_intervals=True,
        )


def _find_constant_reward(shown: Impressions) -> Iterator[ImpressionFinding]:
    if shown.n_requests > 1 and np.ptp(shown.reward) == 0:
        value = float(shown.reward[0])
        yield ImpressionFinding(
            "rewards all equal",
            len(shown),
            f"{value:g} in every row",
            "A log of clicks alone says nothing: it must have the items that were shown and not "
            "clicked, with the reward 0.",
            prevents_intervals=True,
        )


def _find_constant_probability(shown: Impressions) -> Iterator[ImpressionFinding]:
    if shown.probability is not None and np.ptp(shown.probability) == 0:
        value = float(shown.probability[0])
        meaning = "Right for a uniform logging policy; else a default was logged by mistake."
        if value == 1:
            meaning = "The logging policy is deterministic: use 'pbm' with an examination curve."
        yield ImpressionFinding(
            "constant probability", len(shown), f"all probabilities are {value:g}", meaning
        )
