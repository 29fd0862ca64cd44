"""A checksum of parsed content, which line ends and spacing of the files do not change."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from unskew.data.ratings import Ratings


def sha256_of(*parts: npt.NDArray[Any] | Sequence[str] | Ratings) -> str:
    """SHA-256 over shapes and values: numbers as little-endian float64, words as UTF-8 lines."""
    digest = hashlib.sha256()
    for part in parts:
        for array in _arrays(part):
            digest.update(str(array.shape).encode())
            digest.update(_bytes(array))
    return digest.hexdigest()


def _arrays(part: npt.NDArray[Any] | Sequence[str] | Ratings) -> list[npt.NDArray[Any]]:
    if isinstance(part, Ratings):
        return [part.users[part.user], part.items[part.item], part.rating]
    return [np.asarray(part)]


def _bytes(array: npt.NDArray[Any]) -> bytes:
    if array.dtype.kind == "U":
        return "\n".join(array.tolist()).encode()
    return array.astype("<f8").tobytes()
