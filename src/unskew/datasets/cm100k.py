"""CM100K: music tracks drawn at random for each listener, and whether they knew them before."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from unskew.data.ratings import Ratings
from unskew.datasets import DATASETS
from unskew.datasets.location import DatasetSource, Files, PathLike, find_files
from unskew.datasets.reading import read_dataset_table
from unskew.types import BoolVector

CM100K_SOURCE = DatasetSource(
    name="cm100k",
    title="CM100K",
    layouts=(("ratings.txt",), ("data.txt",)),
    folders=("cm100k", "CM100K"),
    how_to_get=(
        "Get it from the authors (R. Cañamares and P. Castells, SIGIR 2018; Information Retrieval "
        "Group, Universidad Autónoma de Madrid), and pass the folder of its ratings.txt as "
        "`path=...`, or set $UNSKEW_DATA to it."
    ),
)


@dataclass(frozen=True, slots=True, eq=False)
class CM100K:
    """The CM100K data; users and tracks keep their ids. The file has all that exist."""

    ratings: Ratings
    """All ratings, 1 to 4, of tracks drawn uniformly at random: an unbiased sample."""
    is_known: BoolVector = field(repr=False)
    """Whether the user had heard the track before, in the order of ``ratings``."""

    @property
    def train(self) -> Ratings:
        """The ratings of known tracks: a log as it arises when people choose what they hear."""
        return self.ratings.take(self.is_known)


@DATASETS.declare(
    CM100K_SOURCE.name,
    label=CM100K_SOURCE.title,
    summary="103,584 ratings of random tracks, 11,594 of them known before; from its authors.",
    traits={"source": CM100K_SOURCE, "record": CM100K},
)
def load_cm100k(path: PathLike = None) -> CM100K:
    """CM100K: 103,584 ratings, 1 to 4, of random tracks by 1,054 users on 1,084 tracks.

    For 11,594 of them the user knew the track. The file is searched in ``path``, else in
    ``$UNSKEW_DATA`` (the folder itself or its sub-folder ``cm100k``). Terms: public; its readme
    names the paper to cite.

    Source: R. Cañamares, P. Castells. *Should I Follow the Crowd? A Probabilistic Analysis of the
    Effectiveness of Popularity in Recommender Systems.* SIGIR 2018.
    """
    return _read(find_files(CM100K_SOURCE, path))


def _read(files: Files) -> CM100K:
    table = read_dataset_table(files[0], ("user", "item", "rating", "known"), delimiter="\t")
    flags = table.numbers("known")
    table.require(np.isin(flags, (0, 1)), "1 (known before) or 0", "known")
    users, items = np.unique(table.integers("user")), np.unique(table.integers("item"))
    return CM100K(table.ratings(users=users, items=items, max_rating=4), flags == 1)
