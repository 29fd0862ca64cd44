"""Ids of any hashable type to int32 codes and back."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from unskew.errors import BadRatingError, DuplicateCellError
from unskew.types import IntVector

Ids: TypeAlias = npt.NDArray[Any]


def as_ids(values: Sequence[Hashable] | npt.ArrayLike) -> Ids:
    """A one-dimensional array of ids; tuples and other odd ids stay whole, as objects."""
    if isinstance(values, np.ndarray) and values.ndim == 1:
        return values
    items = list(values)  # type: ignore[arg-type]
    if {type(value) for value in items} in ({int}, {str}):
        return np.asarray(items)
    ids = np.empty(len(items), dtype=object)
    ids[:] = items
    return ids


def encode(ids: Ids) -> tuple[IntVector, Ids]:
    """Codes and vocabulary, sorted where ids can be compared and in order of appearance otherwise."""
    if ids.dtype.kind in "iu":
        return _encode_integers(ids)
    if ids.dtype.kind != "O":
        vocabulary, codes = np.unique(ids, return_inverse=True)
        return codes.astype(np.int32), vocabulary
    seen = dict.fromkeys(ids.tolist())
    try:
        ordered = sorted(seen)
    except TypeError:
        ordered = list(seen)
    vocabulary = as_ids(ordered)
    return encode_with(ids, vocabulary, kind="id"), vocabulary


def _encode_integers(ids: Ids) -> tuple[IntVector, Ids]:
    """By a look-up table where the ids are dense enough, which is many times faster than a sort."""
    low, high = int(ids.min()), int(ids.max())
    if high - low > 8 * ids.size + 1024:
        vocabulary, codes = np.unique(ids, return_inverse=True)
        return codes.astype(np.int32), vocabulary
    shifted = ids - ids.dtype.type(low)
    present = np.zeros(high - low + 1, dtype=bool)
    present[shifted] = True
    table = np.cumsum(present, dtype=np.int32) - np.int32(1)
    return table[shifted], (np.flatnonzero(present) + low).astype(ids.dtype)


def encode_with(ids: Ids, vocabulary: Ids, *, kind: str) -> IntVector:
    """Codes of ``ids`` in a given vocabulary; an id outside it is an error that names its row."""
    codes = _look_up(ids, vocabulary, _table(vocabulary, kind=kind))
    if (codes < 0).any():
        row = int((codes < 0).argmax())
        raise BadRatingError(
            f"{int((codes < 0).sum())} of {len(ids)} rows have a {kind} that is not in {kind}s=...; "
            f"the first is {ids[row]!r} at row {row}. Add it there, or drop those rows."
        )
    return codes


def _look_up(ids: Ids, vocabulary: Ids, table: dict[Hashable, int]) -> IntVector:
    """The code of each id, -1 where it has none; by bisection for numbers, one at a time for other ids."""
    if not (ids.dtype.kind in "iuf" and vocabulary.dtype.kind in "iuf"):
        return np.fromiter((table.get(value, -1) for value in ids.tolist()), dtype=np.int32, count=len(ids))
    order = np.argsort(vocabulary)
    place = np.minimum(np.searchsorted(vocabulary, ids, sorter=order), len(vocabulary) - 1)
    return np.where(vocabulary[order[place]] == ids, order[place], -1).astype(np.int32)


def _table(vocabulary: Ids, *, kind: str) -> dict[Hashable, int]:
    table = {value: code for code, value in enumerate(vocabulary.tolist())}
    if len(table) < len(vocabulary):
        raise DuplicateCellError(f"{kind}s=... lists {len(vocabulary) - len(table)} {kind}s more than once.")
    return table
