"""The public data sets that can be read, by the names that users type; where each is, and whether it is what was published."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from unskew.datasets.cm100k import CM100K_SOURCE, load_cm100k
from unskew.datasets.coat import COAT, load_coat
from unskew.datasets.jester import JESTER, load_jester
from unskew.datasets.location import VARIABLE, PathLike, Source, find
from unskew.datasets.movielens import MOVIELENS_100K, load_movielens_100k
from unskew.datasets.yahoo_r3 import YAHOO_R3, load_yahoo_r3
from unskew.errors import DatasetFormatError, DatasetNotFoundError, UnknownNameError
from unskew.tables import count_noun


@dataclass(frozen=True, slots=True)
class Known:
    """A data set that can be read."""

    name: str
    source: Source
    load: Callable[[PathLike], Any]

    def folder(self, path: PathLike = None) -> str | None:
        """Where its files lie, below ``path`` or ``$UNSKEW_DATA``; None where they do not."""
        try:
            files = find(self.source, path)
        except DatasetNotFoundError:
            return None
        return os.path.commonpath([os.path.dirname(str(file)) for file in files])  # noqa: PTH120 - also inside a zip file

    def check(self, path: PathLike = None) -> str:
        """Read it, and say what it is: as published, or that nobody published what to compare with."""
        find(self.source, path)
        data = self.load(path)
        log = data.train if hasattr(data, "train") else data.ratings
        sizes = f"{count_noun(len(log), 'rating')} by {count_noun(log.n_users, 'user')} on {count_noun(log.n_items, 'item')}"
        if self.source.archive is None:
            return f"readable: {sizes}; there is no published digest to compare with"
        if data.digest != self.source.archive.digest:
            raise DatasetFormatError(
                f"{self.source.name} in {self.folder(path)} is not what was published: the content has SHA-256 {data.digest}, "
                f"expected {self.source.archive.digest}. {self.source.how_to_get}"
            )
        return f"as published: {sizes}; SHA-256 {data.digest[:16]}..."


DATASETS: Mapping[str, Known] = {
    known.name: known
    for known in (
        Known("coat", COAT, load_coat),
        Known("movielens-100k", MOVIELENS_100K, load_movielens_100k),
        Known("yahoo-r3", YAHOO_R3, load_yahoo_r3),
        Known("cm100k", CM100K_SOURCE, load_cm100k),
        Known("jester", JESTER, load_jester),
    )
}


def find_dataset(name: str) -> Known:
    """The data set of that name."""
    if name not in DATASETS:
        raise UnknownNameError("data set", name, DATASETS)
    return DATASETS[name]


def looked_in(path: PathLike = None) -> str:
    """Where data sets are looked for, in words."""
    if path is not None:
        return str(path)
    folder = os.environ.get(VARIABLE)
    return (
        f"{folder} (${VARIABLE})"
        if folder
        else f"nowhere: ${VARIABLE} is not set, and no folder was named"
    )
