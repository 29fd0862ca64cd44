"""Models that were fitted to cells of the test: their errors there say little about other cells."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from unskew.data.ratings import Ratings
from unskew.errors import UnskewWarning
from unskew.tables import join_words

TRAINED_ON = "models? .* trained on .* tested cells"
"""A pattern of the warnings, for filters."""
ON_A_LOG = (
    "Hold ratings out: fit models to the first part of unskew.split(log), and evaluate them on "
    "the second."
)
ON_A_LOG_IN_SHELL = (
    "Hold ratings out: train models on the first part of `unskew split`, and evaluate them on the "
    "second."
)
ON_A_RANDOM_TEST = "Pass the training log as `exclude=...`: its cells leave the test."


@runtime_checkable
class CountingModel(Protocol):
    """A fitted model that knows the cells it was fitted to."""

    def count_seen(self, log: Ratings, /) -> int: ...


@dataclass(frozen=True, slots=True)
class TrainingOverlap:
    """How many of the tested cells each model was fitted to."""

    n_cells: int
    """Tested cells."""
    n_seen: Mapping[str, int]
    """By name of the models that were fitted to some of them; other models may be unknown."""
    is_random_test: bool = False

    def __add__(self, other: TrainingOverlap) -> TrainingOverlap:
        """The overlap of two logs without common cells, evaluated with the same models."""
        names = dict.fromkeys([*self.n_seen, *other.n_seen])
        n_seen = {name: self.n_seen.get(name, 0) + other.n_seen.get(name, 0) for name in names}
        return TrainingOverlap(self.n_cells + other.n_cells, n_seen, self.is_random_test)

    def warnings(self) -> Iterator[UnskewWarning]:
        """One warning for all models with the same number of cells."""
        for count in dict.fromkeys(self.n_seen.values()):
            names = [repr(name) for name, n_seen in self.n_seen.items() if n_seen == count]
            is_one = len(names) == 1
            yield UnskewWarning(
                f"{'model' if is_one else 'models'} {join_words(names)} "
                f"{'was' if is_one else 'were'} trained on {count:,} of the {self.n_cells:,} "
                f"tested cells, so {'it looks' if is_one else 'they look'} better than "
                f"{'it is' if is_one else 'they are'}.",
                parameter="predictions",
                remedy=ON_A_RANDOM_TEST if self.is_random_test else ON_A_LOG,
                shell_remedy=ON_A_RANDOM_TEST if self.is_random_test else ON_A_LOG_IN_SHELL,
            )


def find_training_overlap(
    models: Mapping[str, object], tested: Ratings, *, is_random_test: bool = False
) -> TrainingOverlap:
    """The overlap of models that know the cells they were fitted to; the ids are compared."""
    counts = {
        name: model.count_seen(tested)
        for name, model in models.items()
        if isinstance(model, CountingModel) and not isinstance(model, type)
    }
    n_seen = {name: count for name, count in counts.items() if count}
    return TrainingOverlap(len(tested), n_seen, is_random_test)
