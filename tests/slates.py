"""All slates of a small world, as a log in which each slate is one request."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import permutations, product

import numpy as np
import numpy.typing as npt

from unskew.data.impressions import Impressions
from unskew.policies.targets import (
    IndependentSlots,
    PlackettLuce,
    Policy,
    TargetRanking,
    UniformSlate,
)
from unskew.types import Matrix, Vector

Slates = npt.NDArray[np.int64]
Rewards = Callable[[Slates], Matrix]
"""The expected reward of each slot, given the slate."""


@dataclass(frozen=True)
class ItemScores:
    """A model whose scores depend on the item alone."""

    table: Vector

    def predict(self, users: npt.NDArray[np.generic], items: npt.NDArray[np.generic], /) -> Vector:
        return np.asarray(self.table[items.astype(np.int64)])


def list_all(n_items: int, n_slots: int, *, repeats: bool) -> Slates:
    items = range(n_items)
    return np.array(
        list(product(items, repeat=n_slots) if repeats else permutations(items, n_slots))
    )


def slate_probability(kind: str, scores: Vector, slates: Slates) -> Vector:
    """P(slate), written without the library: by its definition, slate by slate."""
    rate = np.exp(scores)
    values = []
    for slate in slates:
        probability, left = 1.0, list(range(scores.size))
        for slot, item in enumerate(slate):
            if kind == "product":
                probability *= rate[item] / rate.sum()
            elif kind == "sorted":
                probability *= float(np.argsort(-scores)[slot] == item)
            elif item not in left:
                probability = 0.0
            else:
                weights = np.ones_like(rate) if kind == "uniform" else rate
                probability *= weights[item] / weights[left].sum()
                left.remove(item)
        values.append(probability)
    return np.array(values)


def find_marginals(probability: Vector, slates: Slates, n_items: int) -> Matrix:
    """Slots x items: P(s_k = a)."""
    marginal = np.zeros((slates.shape[1], n_items))
    for slot in range(slates.shape[1]):
        np.add.at(marginal[slot], slates[:, slot], probability)
    return marginal


def make_policy(kind: str, scores: Vector) -> Policy:
    model = ItemScores(scores)
    policies: dict[str, Policy] = {
        "uniform": UniformSlate(),
        "plackett-luce": PlackettLuce(model),
        "product": IndependentSlots(model),
        "sorted": TargetRanking(scores=model),
    }
    return policies[kind]


def make_log(
    slates: Slates, rewards: Matrix, other: dict[str, Matrix] | None = None
) -> Impressions:
    """Each slate is one request of its own user; all items occur in the vocabulary."""
    n, k = slates.shape
    return Impressions.from_arrays(
        np.repeat(np.arange(n), k),
        np.repeat(np.arange(n), k),
        slates.ravel(),
        rewards.ravel(),
        position=np.tile(np.arange(1, k + 1), n),
        other={name: column.ravel() for name, column in (other or {}).items()},
        repeats=True,
    )
