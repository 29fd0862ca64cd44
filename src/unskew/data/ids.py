"""Ids of any hashable type to int32 codes and back, and checks of codes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from unskew.data.checks import as_array, refuse_masked
from unskew.errors import (
    BadRatingError,
    DataError,
    DuplicateCellError,
    UniverseError,
    UsageError,
)
from unskew.settings import describe
from unskew.tables import count_noun
from unskew.types import BoolVector, IntVector

Ids: TypeAlias = npt.NDArray[Any]
MAX_CODES = 2**31 - 1
"""Codes of users and items are int32."""
ROOM_OF_TEXT, SMALL_TEXT = 8, 1 << 16
"""An array of text may have so many times as many characters as its texts, or so many in all."""
IDS_AT_ONCE = 1 << 20
"""Ids that are sorted at once: less than half a second of work."""


def as_ids(values: Sequence[Hashable] | npt.ArrayLike, parameter: str = "ids") -> Ids:
    """A one-dimensional array of ids; tuples and other unusual ids become objects.

    ``parameter`` is the argument that an error names.
    """
    refuse_masked(values, "ids", BadRatingError)
    if hasattr(values, "__array__"):
        ids = as_array(values)
        if ids.ndim != 1 or ids.dtype.kind in "cV":
            got = f"an array of shape {ids.shape}" if ids.ndim != 1 else str(ids.dtype)
            raise BadRatingError(
                f"`{parameter}` must be a one-dimensional array of ids; got {got}.",
                parameter=parameter,
            )
        return ids
    if not isinstance(values, Iterable) or isinstance(values, (str, bytes)):
        raise BadRatingError(
            f"`{parameter}` must be a list or one-dimensional array of ids; "
            f"got {describe(values)}.",
            parameter=parameter,
        )
    listed = list(values)
    types = {type(value) for value in listed}
    if types == {int} or (types == {str} and _is_compact(listed)):
        ids = np.asarray(listed)
        # NumPy rounds some large integers and drops NUL characters at the end of text.
        if ids.dtype.kind in "iuU" and ids.tolist() == listed:
            return ids
    return object_array(listed)


def as_listed_ids(values: Sequence[Hashable] | npt.ArrayLike, parameter: str) -> Ids:
    """``as_ids`` for an argument that takes several ids; an error if it is one id alone."""
    is_text = isinstance(values, str | bytes)
    if is_text or getattr(values, "shape", None) == () or not isinstance(values, Iterable):
        single = values.tolist() if isinstance(values, np.generic | np.ndarray) else values
        raise UsageError(
            f"`{parameter}` must be a list of ids; got the single id {describe(single)}.",
            parameter=parameter,
            value=single,
            remedy=f"Pass a list: `{parameter}=[{describe(single)}]`.",
        )
    return as_ids(values, parameter)


def _is_compact(texts: Sequence[Any]) -> bool:
    """Whether an array that gives each text the room of the longest is not much larger than they.

    One id of a megabyte among thousands of short ones would take gigabytes.
    """
    lengths = [len(text) for text in texts]
    return max(lengths) * len(texts) <= max(ROOM_OF_TEXT * sum(lengths), SMALL_TEXT)


def object_array(values: Sequence[Any]) -> Ids:
    """A one-dimensional array of Python objects, also where these are sequences themselves."""
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


def require_no_missing_ids(ids: Ids, *, kind: str) -> Ids:
    """The ids themselves; an error if one of them is missing."""
    is_missing = missing_ids(ids)
    if is_missing.any():
        raise BadRatingError(
            f"`{kind}s=...` lists a missing id at position {int(is_missing.argmax())}.",
            parameter=f"{kind}s",
            remedy="Leave it out.",
        )
    return ids


def find_bad_ids(ids: Ids) -> str | None:
    """What is wrong with ids that were read from a file; None if each can be looked up.

    >>> find_bad_ids(np.array([1, 2, 1]))
    'they list 1 more than once'
    """
    try:
        if ids.dtype.kind != "O" and (ids[1:] > ids[:-1]).all():
            return None  # sorted, as most are, and NaN is never larger
        if missing_ids(ids).any():
            return "one of them is missing"
        repeated = find_repeated_ids(ids)
    except BadRatingError:
        return "one of them is neither text nor a number"
    return f"they list {format_id(repeated[0])} more than once" if repeated else None


def check_id_list(values: npt.ArrayLike, *, kind: str) -> Ids:
    """A copy of the ids that the caller lists; an error if one is missing or listed twice."""
    ids = require_no_missing_ids(as_ids(values, f"{kind}s").copy(), kind=kind)
    repeated = find_repeated_ids(ids)
    if repeated:
        raise DuplicateCellError(
            f"`{kind}s=...` lists {count_noun(len(repeated), kind)} more than once; the first is "
            f"{format_id(repeated[0])}.",
            parameter=f"{kind}s",
            remedy="Keep one of each.",
        )
    return ids


def find_repeated_ids(ids: Ids) -> list[Any]:
    """The distinct ids that occur more than once, in order of appearance."""
    if len(_distinct(ids)) == len(ids):
        return []
    return [value for value, count in Counter(ids.tolist()).items() if count > 1]


def missing_ids(ids: Ids) -> BoolVector:
    """Whether each id is None, NaN, NaT or another library's null."""
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
    """An id as errors print it: as the caller would write it, without the NumPy type."""
    if isinstance(value, (np.datetime64, np.timedelta64)):
        return str(value)
    return repr(value.item() if isinstance(value, np.generic) else value)


def describe_id_types(ids: Ids, vocabulary: Ids) -> str:
    """What an error adds if ids are text on one side and numbers on the other; else nothing.

    >>> describe_id_types(np.array(["7"]), np.array([7]))
    ' (text, where a number such as 7 is known)'
    """
    kinds = [_describe_kind(each) for each in (ids, vocabulary)]
    if not all(kinds) or kinds[0] == kinds[1]:
        return ""
    return f" ({kinds[0]}, where {kinds[1]} such as {format_id(vocabulary[0])} is known)"


def _describe_kind(ids: Ids) -> str:
    """Whether the first id is text or a number; empty for any other type."""
    first = ids[:1].tolist()
    if first and isinstance(first[0], str):
        return "text"
    return "a number" if first and isinstance(first[0], (int, float)) else ""


def require_pairs(users: IntVector, items: IntVector) -> None:
    """Raise an error unless there are as many users as items, which form pairs by position."""
    if users.shape != items.shape:
        raise UsageError(
            f"`users` has {users.size} entries and `items` has {items.size}.",
            parameter="items",
            remedy="Pass one item for each user: pairs are formed by position.",
        )


def encode(ids: Ids) -> tuple[IntVector, Ids]:
    """Codes and vocabulary, sorted if ids can be compared, else in order of appearance."""
    if ids.dtype.kind in "iu":
        return _encode_integers(ids)
    if ids.dtype.kind != "O":
        return _encode_by_sorting(ids)
    distinct = _distinct(ids)
    try:
        ordered = sorted(distinct)
    except TypeError:
        ordered = list(distinct)
    vocabulary = as_ids(ordered)
    return encode_with(ids, vocabulary, kind="id"), vocabulary


def encode_ids(
    ids: Ids,
    listed: npt.ArrayLike | None,
    *,
    kind: str,
    error_type: type[DataError] = BadRatingError,
    remedy: str = "Drop those rows first.",
) -> tuple[IntVector, Ids]:
    """Codes and vocabulary of a column of ids; ``listed`` is the vocabulary if it is not None.

    A missing id is an error of the given type and remedy.
    """
    if listed is not None:
        vocabulary = check_id_list(listed, kind=kind)
        return encode_with(ids, vocabulary, kind=kind), vocabulary
    codes, vocabulary = encode(ids)
    is_missing = missing_ids(vocabulary)[codes]
    if is_missing.any():
        row = int(is_missing.argmax())
        raise error_type(
            f"{int(is_missing.sum())} of {len(ids)} {kind} ids are missing; "
            f"the first is at row {row}.",
            parameter=kind,
            where=f"row {row}",
            remedy=remedy,
        )
    return codes, vocabulary


def _distinct(ids: Ids) -> dict[Any, None]:
    """The distinct ids in order of appearance."""
    try:
        return dict.fromkeys(ids.tolist())
    except TypeError as error:
        raise _unhashable_error(ids) from error


def _unhashable_error(ids: Ids) -> BadRatingError:
    row, value = next(
        (row, value) for row, value in enumerate(ids.tolist()) if not _is_hashable(value)
    )
    return BadRatingError(
        f"an id of type {type(value).__name__} cannot be looked up; "
        f"the first is {value!r} at row {row}.",
        value=value,
        where=f"row {row}",
        remedy="Use numbers, text or tuples.",
    )


def _is_hashable(value: object) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


def _encode_by_sorting(ids: Ids) -> tuple[IntVector, Ids]:
    """Codes and sorted vocabulary; part by part, because a sort cannot be interrupted."""
    parts = [
        np.unique(ids[first : first + IDS_AT_ONCE], return_inverse=True)
        for first in range(0, max(ids.size, 1), IDS_AT_ONCE)
    ]
    vocabulary = np.unique(np.concatenate([distinct for distinct, _ in parts]))
    codes = [np.searchsorted(vocabulary, distinct)[code] for distinct, code in parts]
    return np.concatenate(codes).astype(np.int32), vocabulary


def _encode_integers(ids: Ids) -> tuple[IntVector, Ids]:
    """By a look-up table if the ids are dense enough, which is much faster than sorting."""
    low, high = int(ids.min()), int(ids.max())
    if high - low > 8 * ids.size + 1024:
        return _encode_by_sorting(ids)
    # The difference of two int8 values does not fit in int8.
    wide = ids if ids.dtype == np.uint64 else ids.astype(np.int64, copy=False)
    shifted = wide - wide.dtype.type(low)
    present = np.zeros(high - low + 1, dtype=bool)
    present[shifted] = True
    table = np.cumsum(present, dtype=np.int32) - np.int32(1)
    vocabulary = np.flatnonzero(present).astype(wide.dtype) + wide.dtype.type(low)
    return table[shifted], vocabulary.astype(ids.dtype)


def encode_with(ids: Ids, vocabulary: Ids, *, kind: str) -> IntVector:
    """Codes of ``ids`` in a given vocabulary; an error if an id is not in it."""
    codes = find_codes(ids, vocabulary)
    if (codes < 0).any():
        row = int((codes < 0).argmax())
        raise BadRatingError(
            f"{int((codes < 0).sum())} of {len(ids)} rows have a {kind} that is not in "
            f"`{kind}s=...`; the first is {format_id(ids[row])} at row {row}.",
            parameter=f"{kind}s",
            value=ids[row],
            where=f"row {row}",
            remedy=f"Add it to `{kind}s`, or drop those rows.",
        )
    return codes


def find_codes(ids: Ids, vocabulary: Ids) -> IntVector:
    """The code of each id, -1 if it is not in the vocabulary.

    Numbers and dates are found by bisection, other ids one by one in a dictionary.
    """
    if vocabulary.size == 0 or not _compare_exactly(ids.dtype, vocabulary.dtype):
        table = {value: code for code, value in enumerate(vocabulary.tolist())}
        try:
            return np.fromiter(
                (table.get(value, -1) for value in ids.tolist()), dtype=np.int32, count=len(ids)
            )
        except TypeError as error:
            raise _unhashable_error(ids) from error
    order = np.argsort(vocabulary)
    position = np.minimum(np.searchsorted(vocabulary, ids, sorter=order), len(vocabulary) - 1)
    candidate = order[position]
    return np.where(vocabulary[candidate] == ids, candidate, -1).astype(np.int32)


def _compare_exactly(one: np.dtype[Any], other: np.dtype[Any]) -> bool:
    """Whether NumPy compares the two without rounding (it rounds int64 and uint64 to float64)."""
    if one.kind in "iu" and other.kind in "iu":
        return np.promote_types(one, other).kind in "iu"
    return one.kind == other.kind and one.kind in "fmM"


def check_codes(codes: npt.ArrayLike, size: int, *, kind: str) -> IntVector:
    """Codes as int32; an error unless they are whole numbers from 0 to ``size - 1``."""
    try:
        values = np.asarray(codes)
    except ValueError as error:  # lists of different lengths
        raise BadRatingError(
            f"{kind} codes must be a one-dimensional array of whole numbers; got lists of "
            "different lengths.",
            parameter=kind,
        ) from error
    if values.ndim != 1 or values.dtype.kind not in "iuf":
        raise BadRatingError(
            f"{kind} codes must be a one-dimensional array of whole numbers; "
            f"got {values.dtype} of shape {values.shape}.",
            parameter=kind,
            remedy="For ids, such as text, use Ratings.from_arrays.",
        )
    if values.size and values.dtype.kind in "iu" and 0 <= values.min() <= values.max() < size:
        return values.astype(np.int32)
    is_valid = (values >= 0) & (values < size) & (values == np.floor(values))
    if not is_valid.all():
        row = int(is_valid.argmin())
        raise UniverseError(
            f"{kind} {values[row]} at row {row} is outside the matrix, "
            f"whose {kind}s are the whole numbers 0 to {size - 1}.",
            parameter=kind,
            value=values[row].item(),
            where=f"row {row}",
            remedy="Codes count from 0. For ids, such as numbers from 1 on, use "
            "Ratings.from_arrays.",
        )
    return values.astype(np.int32)


def matrix_ids(size: int, listed: npt.ArrayLike | None, *, kind: str) -> Ids:
    """The ids of the rows or columns of a matrix: those listed, or 0, 1, 2, ..."""
    if size > MAX_CODES:
        raise UniverseError(
            f"a matrix can have {MAX_CODES:,} {kind}s; this one has {size:,}.",
            parameter="shape",
            value=size,
            remedy="List the ids of the log with Ratings.from_arrays, and pass `universe`.",
        )
    if listed is None:
        return np.arange(size)
    ids = check_id_list(listed, kind=kind)
    if len(ids) != size:
        raise BadRatingError(
            f"the matrix has {size} {kind}s, but `{kind}s=...` lists {len(ids)}.",
            parameter=f"{kind}s",
            remedy=f"List one id for each {'row' if kind == 'user' else 'column'} of the matrix, "
            f"or leave `{kind}s` out to number them 0, 1, 2, ...",
        )
    return ids
