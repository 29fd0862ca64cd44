"""Ids of any hashable type to int32 codes and back."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from unskew.errors import BadRatingError, DuplicateCellError
from unskew.tables import count_noun
from unskew.types import BoolVector, IntVector

Ids: TypeAlias = npt.NDArray[Any]


def as_ids(values: Sequence[Hashable] | npt.ArrayLike) -> Ids:
    """A one-dimensional array of ids; tuples and other odd ids stay whole, as objects."""
    if hasattr(values, "__array__"):
        ids = np.asarray(values)
        if ids.ndim != 1:
            raise BadRatingError(f"ids must form one column; got an array of shape {ids.shape}.")
        return ids
    if not isinstance(values, Iterable) or isinstance(values, (str, bytes)):
        raise BadRatingError(f"ids must form one column, such as a list; got {values!r}.")
    items = list(values)
    if {type(value) for value in items} in ({int}, {str}):
        ids = np.asarray(items)
        if (
            ids.dtype.kind in "iuU" and ids.tolist() == items
        ):  # NumPy rounds some large integers and cuts final NULs off
            return ids
    ids = np.empty(len(items), dtype=object)
    ids[:] = items
    return ids


def check_id_list(values: npt.ArrayLike, *, kind: str) -> Ids:
    """A vocabulary that the caller lists: our own copy of it, each id once and none missing."""
    ids = as_ids(values).copy()
    if missing_ids(ids).any():
        raise BadRatingError(
            f"{kind}s=... lists a missing id at place {int(missing_ids(ids).argmax())}. Leave it out."
        )
    n_repeats = len(ids) - len(_distinct(ids))
    if n_repeats:
        raise DuplicateCellError(f"{kind}s=... lists {count_noun(n_repeats, kind)} more than once.")
    return ids


def missing_ids(ids: Ids) -> BoolVector:
    """Where an id is None, NaN, NaT or another library's null."""
    if ids.dtype.kind in "fcmM":
        return np.isnan(ids)
    if ids.dtype.kind != "O":
        return np.zeros(len(ids), dtype=bool)
    return np.fromiter((_is_missing(value) for value in ids.tolist()), dtype=bool, count=len(ids))


def _is_missing(value: Any) -> bool:
    try:
        return value is None or bool(value != value)
    except TypeError:  # pandas.NA refuses to be true or false
        return True


def format_id(value: Any) -> str:
    """An id as errors print it: as the caller would write it, without NumPy's type around it."""
    if isinstance(value, (np.datetime64, np.timedelta64)):
        return str(value)
    return repr(value.item() if isinstance(value, np.generic) else value)


def describe_id_types(asked: Ids, known: Ids) -> str:
    """What to add to a message where ids are text on one side and numbers on the other."""
    kinds = [_kind(ids) for ids in (asked, known)]
    if not all(kinds) or kinds[0] == kinds[1]:
        return ""
    return f" ({kinds[0]}, where {kinds[1]} such as {format_id(known[0])} is known)"


def _kind(ids: Ids) -> str:
    """Of the first id, in words; none for any other type."""
    first = (
        ids[0].item()
        if len(ids) and isinstance(ids[0], np.generic)
        else ids[0]
        if len(ids)
        else None
    )
    return (
        "text" if isinstance(first, str) else "a number" if isinstance(first, (int, float)) else ""
    )


def encode(ids: Ids) -> tuple[IntVector, Ids]:
    """Codes and vocabulary, sorted where ids can be compared and in order of appearance otherwise."""
    if ids.dtype.kind in "iu":
        return _encode_integers(ids)
    if ids.dtype.kind != "O":
        vocabulary, codes = np.unique(ids, return_inverse=True)
        return codes.astype(np.int32), vocabulary
    seen = _distinct(ids)
    try:
        ordered = sorted(seen)
    except TypeError:
        ordered = list(seen)
    vocabulary = as_ids(ordered)
    return encode_with(ids, vocabulary, kind="id"), vocabulary


def _distinct(ids: Ids) -> dict[Any, None]:
    """The ids, each once, in order of appearance."""
    try:
        return dict.fromkeys(ids.tolist())
    except TypeError as error:
        raise _unhashable(ids) from error


def _unhashable(ids: Ids) -> BadRatingError:
    row, bad = next(
        (row, value) for row, value in enumerate(ids.tolist()) if not _is_hashable(value)
    )
    return BadRatingError(
        f"an id of type {type(bad).__name__} cannot be looked up; the first is {bad!r} at row {row}. Use numbers, text or tuples."
    )


def _is_hashable(value: object) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


def _encode_integers(ids: Ids) -> tuple[IntVector, Ids]:
    """By a look-up table where the ids are dense enough, which is many times faster than a sort."""
    low, high = int(ids.min()), int(ids.max())
    if high - low > 8 * ids.size + 1024:
        vocabulary, codes = np.unique(ids, return_inverse=True)
        return codes.astype(np.int32), vocabulary
    wide = (
        ids if ids.dtype == np.uint64 else ids.astype(np.int64, copy=False)
    )  # int8 cannot hold 100 - -100
    shifted = wide - wide.dtype.type(low)
    present = np.zeros(high - low + 1, dtype=bool)
    present[shifted] = True
    table = np.cumsum(present, dtype=np.int32) - np.int32(1)
    vocabulary = np.flatnonzero(present).astype(wide.dtype) + wide.dtype.type(low)
    return table[shifted], vocabulary.astype(ids.dtype)


def encode_with(ids: Ids, vocabulary: Ids, *, kind: str) -> IntVector:
    """Codes of ``ids`` in a given vocabulary; an id outside it is an error that names its row."""
    codes = find_codes(ids, vocabulary)
    if (codes < 0).any():
        row = int((codes < 0).argmax())
        raise BadRatingError(
            f"{int((codes < 0).sum())} of {len(ids)} rows have a {kind} that is not in {kind}s=...; "
            f"the first is {format_id(ids[row])} at row {row}. Add it there, or drop those rows."
        )
    return codes


def find_codes(ids: Ids, vocabulary: Ids) -> IntVector:
    """The code of each id, -1 where it has none; by bisection for numbers and dates, one at a time for other ids."""
    if vocabulary.size == 0 or not _compare_exactly(ids.dtype, vocabulary.dtype):
        table = {value: code for code, value in enumerate(vocabulary.tolist())}
        try:
            return np.fromiter(
                (table.get(value, -1) for value in ids.tolist()), dtype=np.int32, count=len(ids)
            )
        except TypeError as error:
            raise _unhashable(ids) from error
    order = np.argsort(vocabulary)
    place = np.minimum(np.searchsorted(vocabulary, ids, sorter=order), len(vocabulary) - 1)
    return np.where(vocabulary[order[place]] == ids, order[place], -1).astype(np.int32)


def _compare_exactly(one: np.dtype[Any], other: np.dtype[Any]) -> bool:
    """Whether NumPy compares the two without rounding, as it would int64 with uint64 or with floats."""
    if one.kind in "iu" and other.kind in "iu":
        return np.promote_types(one, other).kind in "iu"
    return one.kind == other.kind and one.kind in "fmM"
