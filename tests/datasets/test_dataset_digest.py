from __future__ import annotations

import numpy as np
import numpy.typing as npt

from unskew.data.ratings import Ratings
from unskew.datasets.digest import sha256_of


def test_the_digest_does_not_depend_on_how_numbers_are_stored() -> None:
    as_integers = sha256_of(np.array([[1, 0], [0, 1]]))

    assert as_integers == sha256_of(np.array([[1.0, 0.0], [0.0, 1.0]], order="F"))
    assert as_integers == sha256_of(np.array([[True, False], [False, True]]))
    assert as_integers == sha256_of(np.array([[1, 0], [0, 1]], dtype=">i2"))


def test_the_digest_sees_values_shapes_words_and_where_they_end() -> None:
    parts: list[tuple[npt.NDArray[np.float64] | tuple[str, ...], ...]] = [
        (np.array([1.0, 2.0]),),
        (np.array([1.0, 2.5]),),
        (np.array([[1.0, 2.0]]),),
        (np.array([1.0]), np.array([2.0])),
        (("a", "bc"),),
        (("ab", "c"),),
    ]

    assert len({sha256_of(*part) for part in parts}) == len(parts)


def test_the_digest_of_a_log_is_of_its_ids_and_ratings() -> None:
    log = Ratings.from_arrays([3, 1], [7, 7], [5, 2])
    wider = Ratings.from_arrays([3, 1], [7, 7], [5, 2], users=[1, 2, 3], items=[7, 8])
    other = Ratings.from_arrays([3, 2], [7, 7], [5, 2])

    assert sha256_of(log) == sha256_of(wider)
    assert sha256_of(log) != sha256_of(other)
