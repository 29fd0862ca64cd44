"""A data set from another package: two ratings."""

from dataclasses import dataclass

from unskew.data.ratings import Ratings
from unskew.datasets import DATASETS
from unskew.datasets.location import DatasetSource

SOURCE = DatasetSource(
    name="toy-pair",
    title="Toy pair",
    layouts=(("pair.csv",),),
    folders=("toy-pair",),
    how_to_get="It is made up.",
)


@dataclass(frozen=True)
class ToyPair:
    ratings: Ratings


@DATASETS.declare(
    "toy-pair",
    label="Toy pair",
    summary="Two made-up ratings.",
    traits={"source": SOURCE, "record": ToyPair},
)
def load_toy_pair(path=None) -> ToyPair:
    return ToyPair(Ratings.from_arrays(["ann", "bob"], ["up", "heat"], [5, 1]))
