"""CM100K: music tracks drawn at random for each listener, and whether the listener knew them before."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from unskew.data.ratings import Ratings
from unskew.datasets.location import Files, PathLike, Source, find
from unskew.datasets.logs import LogFile
from unskew.types import BoolVector

CM100K_SOURCE = Source(
    name="CM100K",
    layouts=(("ratings.txt",), ("data.txt",)),
    folders=("cm100k", "CM100K"),
    how_to_get=(
        "Get it from the authors (R. Cañamares and P. Castells, SIGIR 2018; Information Retrieval Group, Universidad "
        "Autónoma de Madrid), and pass the folder of its ratings.txt as path=... or set $UNSKEW_DATA to it."
    ),
)


@dataclass(frozen=True, slots=True, eq=False)
class CM100K:
    """The CM100K data; users and tracks keep their ids, and those in the file are all there are."""

    ratings: Ratings
    """All ratings, 1 to 4, of tracks drawn uniformly at random: an unbiased sample of the matrix."""
    known: BoolVector = field(repr=False)
    """Whether the user had heard the track before, in the order of ``ratings``."""

    @property
    def train(self) -> Ratings:
        """The ratings of known tracks: what a log would hold, were tracks found the way people find them."""
        return self.ratings.take(self.known)


def load_cm100k(path: PathLike = None) -> CM100K:
    """The CM100K data: 103,584 ratings, 1 to 4, of random tracks by 1,054 users on 1,084 tracks; 11,594 knew the track.

    The file is looked for in ``path``, else in ``$UNSKEW_DATA`` (the folder itself or its sub-folder ``cm100k``). Terms:
    public; its readme names the paper to cite.

    Source: R. Cañamares, P. Castells. *Should I Follow the Crowd? A Probabilistic Analysis of the Effectiveness of
    Popularity in Recommender Systems.* SIGIR 2018.
    """
    return _read(find(CM100K_SOURCE, path))


def _read(files: Files) -> CM100K:
    log = LogFile.read(files[0], n_fields=4, best=4)
    known = log.rest[:, 0]
    log.table.require(np.isin(known, (0, 1)), "1 (known before) or 0", field=3)
    return CM100K(log.ratings(users=np.unique(log.user), items=np.unique(log.item)), known == 1)
