"""Simulated impressions: users who click on slates, and the exact value of any policy.

Users are of kinds; a kind has a relevance g of each item and makes a number of requests. Given the
slate s, the expected click of slot k is

    position-based users   th_k g(s_k)                                   th is the examination curve
    cascade users          g(s_k) prod over j < k of (1 - (1 - stay) g(s_j))
    general users          th_k g(s_k) (1 - contrast * mean relevance of the other shown items)

The value of a policy is the expected number of clicks of a request. It is a sum over all slates;
for position-based users it follows from the marginal probabilities of the policy.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import permutations, product
from typing import Literal, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from unskew.data.checks import float_array
from unskew.data.impressions import Impressions
from unskew.errors import UsageError
from unskew.kernels.plackett_luce import find_marginals, find_steps
from unskew.settings import Flag, Number, OneOf, WholeNumber, check_random_state
from unskew.tables import count_noun
from unskew.types import Matrix, RandomState, Vector

LoggingPolicy: TypeAlias = Literal["uniform", "plackett-luce", "product", "rankers"]
LOGGING_POLICIES = ("uniform", "plackett-luce", "product", "rankers")
MAX_SLATES = 200_000
"""With more slates, the value for users who are not position-based is not computed."""


class UserModel(Protocol):
    """How users click, given the relevance of the shown items, requests x slots."""

    def expect_clicks(self, relevance: Matrix, /) -> Matrix:
        """The probability of a click on each slot, given the slate."""
        ...

    def draw_clicks(self, relevance: Matrix, rng: np.random.Generator, /) -> Matrix:
        """Clicks of each slot, 0 or 1."""
        ...


@dataclass(frozen=True, slots=True)
class PositionBasedUsers:
    """A slot is examined with a probability of its own; an examined item is clicked if relevant."""

    examination: tuple[float, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "examination", _read_shares(self.examination))

    def expect_clicks(self, relevance: Matrix, /) -> Matrix:
        clicks: Matrix = relevance * np.array(self.examination)
        return clicks

    def draw_clicks(self, relevance: Matrix, rng: np.random.Generator, /) -> Matrix:
        return _draw_independent(self.expect_clicks(relevance), rng)


@dataclass(frozen=True, slots=True)
class CascadeUsers:
    """Users read from the top and go on after a click with the probability ``stay``."""

    stay: float = 0.0

    def __post_init__(self) -> None:
        Number(least=0, most=1)("stay", self.stay)

    def expect_clicks(self, relevance: Matrix, /) -> Matrix:
        goes_on = np.cumprod(1 - (1 - self.stay) * relevance[:, :-1], axis=1)
        return relevance * np.column_stack([np.ones(len(relevance)), goes_on])

    def draw_clicks(self, relevance: Matrix, rng: np.random.Generator, /) -> Matrix:
        clicks = rng.random(relevance.shape) < relevance
        stays = ~clicks | (rng.random(relevance.shape) < self.stay)
        reads = np.logical_and.accumulate(stays[:, :-1], axis=1)
        clicks[:, 1:] &= reads
        return clicks.astype(np.float64)


@dataclass(frozen=True, slots=True)
class GeneralUsers:
    """An item is clicked less often if the other items of the slate, also lower ones, are good."""

    examination: tuple[float, ...]
    contrast: float = 0.8

    def __post_init__(self) -> None:
        Number(least=0, most=1)("contrast", self.contrast)
        object.__setattr__(self, "examination", _read_shares(self.examination))

    def expect_clicks(self, relevance: Matrix, /) -> Matrix:
        n_others = max(relevance.shape[1] - 1, 1)
        others = (relevance.sum(axis=1, keepdims=True) - relevance) / n_others
        clicks: Matrix = relevance * np.array(self.examination) * (1 - self.contrast * others)
        return clicks

    def draw_clicks(self, relevance: Matrix, rng: np.random.Generator, /) -> Matrix:
        return _draw_independent(self.expect_clicks(relevance), rng)


def _draw_independent(probability: Matrix, rng: np.random.Generator) -> Matrix:
    return (rng.random(probability.shape) < probability).astype(np.float64)


@dataclass(frozen=True, slots=True, eq=False)
class KindScores:
    """Scores of items by kind of user, as a model that predicts pairs of ids."""

    table: Matrix
    """Kinds x items; user id u is of kind ``u % n_kinds``."""

    def predict(self, users: npt.ArrayLike, items: npt.ArrayLike, /) -> Vector:
        """The score of each pair of a user id and an item id."""
        scores: Vector = self.table[np.asarray(users) % len(self.table), np.asarray(items)]
        return scores


@dataclass(frozen=True, eq=False, repr=False)
class ImpressionSimulation:
    """A log of impressions, the world it comes from, and the exact value of any policy in it."""

    log: Impressions
    user_model: UserModel
    relevance: Matrix
    """Kinds x items."""
    activity: Vector
    """The mean number of requests of a user, by kind."""
    logging: LoggingPolicy
    logging_scores: Matrix
    """Scores behind the logging policy: kinds x items, or rankers x kinds x items."""
    target: KindScores
    """Scores of a new ranking, which know the relevance with some error."""
    n_users: int
    n_slots: int

    def __repr__(self) -> str:
        return f"ImpressionSimulation({self.log!r}; {self.user_model!r}, {self.logging} logging)"

    @property
    def n_items(self) -> int:
        return int(self.relevance.shape[1])

    @cached_property
    def logged_value(self) -> float:
        """The exact value of the logging policy."""
        if self.logging == "rankers":
            return float(np.mean([self.value(each) for each in self.logging_scores]))
        is_product = self.logging == "product"
        return self.value(self.logging_scores, temperature=1.0, is_product=is_product)

    def value(
        self, scores: npt.ArrayLike, *, temperature: float | None = None, is_product: bool = False
    ) -> float:
        """The expected number of clicks of a request under a policy by ``scores``, kinds x items.

        Items are sorted by score, which must not have ties, or drawn by Plackett-Luce with a
        temperature. With ``is_product``, each slot is drawn on its own.
        """
        table = float_array(scores, "scores")
        if table.shape not in (self.relevance.shape, self.relevance.shape[1:]):
            raise UsageError(
                f"`scores` has the shape {table.shape}, but there are {len(self.activity)} kinds "
                f"of users and {self.n_items} items.",
                parameter="scores",
                remedy="Pass a row for each kind, or one row for all.",
            )
        if not np.isfinite(table).all():
            raise UsageError("`scores` must be finite.", parameter="scores")
        Number(above=0, allow_none=True)("temperature", temperature)
        Flag()("is_product", is_product)
        table = np.broadcast_to(table, self.relevance.shape)
        if temperature is None:
            slates = np.argsort(-table, axis=1)[:, : self.n_slots]
            relevance = np.take_along_axis(self.relevance, slates, axis=1)
            by_kind = self.user_model.expect_clicks(relevance).sum(axis=1)
        else:
            by_kind = np.array(
                [
                    self._value_of_kind(kind, row / temperature, is_product=is_product)
                    for kind, row in enumerate(table)
                ]
            )
        return float(np.dot(self.activity, by_kind) / self.activity.sum())

    def _value_of_kind(self, kind: int, score: Vector, *, is_product: bool) -> float:
        relevance = self.relevance[kind]
        if isinstance(self.user_model, PositionBasedUsers):
            share = np.exp(score - score.max())
            marginal = (
                np.tile((share / share.sum())[:, None], self.n_slots)
                if is_product
                else find_marginals(score, self.n_slots)
            )
            return float(relevance @ marginal @ np.array(self.user_model.examination))
        slates = self._slates_with_repeats if is_product else self._slates
        clicks = self.user_model.expect_clicks(relevance[slates]).sum(axis=1)
        return float(find_slate_probability(score, slates, is_product=is_product) @ clicks)

    @cached_property
    def _slates(self) -> npt.NDArray[np.int64]:
        return list_slates(self.n_items, self.n_slots, repeats=False)

    @cached_property
    def _slates_with_repeats(self) -> npt.NDArray[np.int64]:
        return list_slates(self.n_items, self.n_slots, repeats=True)

    def draw(self, random_state: RandomState = None) -> Impressions:
        """Another log of the same world: other users, slates and clicks."""
        check_random_state("random_state", random_state)
        rng = np.random.default_rng(random_state)
        kind = rng.integers(len(self.activity), size=self.n_users)
        n_requests = 1 + rng.poisson(self.activity[kind] - 1)
        user = np.repeat(np.arange(self.n_users) * len(self.activity) + kind, n_requests)
        kinds = np.repeat(kind, n_requests)
        slates = self._draw_slates(kinds, rng)
        clicks = self.user_model.draw_clicks(self.relevance[kinds[:, None], slates], rng)
        n, k = slates.shape
        probability = self._find_probability(kinds, slates)
        kind_of_probability: Literal["product", "step"] = (
            "product" if self.logging == "product" else "step"
        )
        return Impressions.from_arrays(
            np.repeat(np.arange(n), k),
            np.repeat(user, k),
            slates.ravel(),
            clicks.ravel(),
            position=np.tile(np.arange(1, k + 1), n),
            probability=probability,
            probability_is=None if probability is None else kind_of_probability,
        )

    def _draw_slates(
        self, kinds: npt.NDArray[np.int64], rng: np.random.Generator
    ) -> npt.NDArray[np.int64]:
        scores = self.logging_scores
        if self.logging == "rankers":
            scores = scores[rng.integers(len(scores), size=kinds.size), kinds]
            return np.argsort(-scores, axis=1)[:, : self.n_slots]
        if self.logging == "product":
            noise = rng.gumbel(size=(kinds.size, self.n_slots, self.n_items))
            return np.asarray(np.argmax(scores[kinds][:, None, :] + noise, axis=2))
        noise = rng.gumbel(size=(kinds.size, self.n_items))
        return np.argsort(-(scores[kinds] + noise), axis=1)[:, : self.n_slots]

    def _find_probability(
        self, kinds: npt.NDArray[np.int64], slates: npt.NDArray[np.int64]
    ) -> Vector | None:
        if self.logging == "rankers":
            return None
        if self.logging == "product":
            share = np.exp(self.logging_scores[kinds])
            share /= share.sum(axis=1, keepdims=True)
            return np.take_along_axis(share, slates, axis=1).ravel()
        starts = np.arange(len(self.activity) + 1) * self.n_items
        chosen = slates + starts[kinds][:, None]
        table = self.logging_scores.ravel()
        return find_steps(table, starts, chosen, kinds.astype(np.int32)).ravel()


def list_slates(n_items: int, n_slots: int, *, repeats: bool) -> npt.NDArray[np.int64]:
    """All slates, one a row; an error if there are more than a computer can list."""
    n_slates = n_items**n_slots if repeats else np.prod(np.arange(n_items, n_items - n_slots, -1.0))
    if n_slates > MAX_SLATES:
        raise UsageError(
            f"{n_items} items in {n_slots} slots have {n_slates:.3g} slates, too many to list.",
            parameter="n_items",
            value=n_items,
            remedy="Use fewer items or slots, or position-based users.",
        )
    items = range(n_items)
    listed = product(items, repeat=n_slots) if repeats else permutations(items, n_slots)
    return np.array(list(listed), dtype=np.int64)


def find_slate_probability(
    score: Vector, slates: npt.NDArray[np.int64], *, is_product: bool = False
) -> Vector:
    """The probability of each slate under Plackett-Luce, or if each slot is drawn on its own."""
    if is_product:
        share = np.exp(score - score.max())
        return np.asarray((share / share.sum())[slates].prod(axis=1))
    one_group = np.zeros(len(slates), dtype=np.int32)
    steps = find_steps(score, np.array([0, score.size]), slates, one_group)
    return np.asarray(steps.prod(axis=1))


def simulate_impressions(
    n_users: int = 400,
    n_items: int = 6,
    n_slots: int = 3,
    *,
    users: Literal["position", "cascade", "general"] | UserModel = "position",
    logging: LoggingPolicy = "uniform",
    requests_per_user: float = 5.0,
    n_kinds: int = 2,
    examination: npt.ArrayLike | None = None,
    n_rankers: int = 3,
    random_state: RandomState = 0,
) -> ImpressionSimulation:
    """Simulate a log of impressions whose truth is known exactly.

    Parameters
    ----------
    n_users, n_items, n_slots
        Users, items that every request chooses from, and shown items of a request.
    users
        How users click: position-based, cascade (they stop at the first click), general (items of
        a slate compete), or a model of the caller.
    logging
        ``"uniform"`` draws without repeats, ``"plackett-luce"`` by scores that know the relevance
        a little, ``"product"`` fills each slot on its own, so that items can repeat, and
        ``"rankers"`` takes one of ``n_rankers`` fixed rankings for each request and logs no
        probability.
    requests_per_user
        The mean number of requests; kinds of users who click more make more requests.
    n_kinds
        How many kinds of users there are. A user id u is of kind ``u % n_kinds``.
    examination
        The examination of each slot; by default 1/k.
    random_state
        Seed or generator.

    Examples
    --------
    >>> world = simulate_impressions(100, random_state=1)
    >>> world.log.n_slots, 0 < world.logged_value < world.value(world.relevance)
    (3, True)
    """
    for name, number in (("n_users", n_users), ("n_items", n_items), ("n_slots", n_slots)):
        WholeNumber(least=1)(name, number)
    WholeNumber(least=1)("n_kinds", n_kinds)
    WholeNumber(least=1)("n_rankers", n_rankers)
    Number(least=1, most=1e9)("requests_per_user", requests_per_user)
    OneOf(LOGGING_POLICIES)("logging", logging)
    check_random_state("random_state", random_state)
    if n_slots > n_items and logging != "product":
        raise UsageError(
            f"{n_slots} slots cannot show {n_items} items without repeats.",
            parameter="n_slots",
            value=n_slots,
            remedy="Use more items, or `logging='product'`.",
        )
    rng = np.random.default_rng(random_state)
    rate = np.linspace(0.6, 1.4, n_kinds) if n_kinds > 1 else np.ones(1)
    relevance = rng.uniform(0.05, 0.65, (n_kinds, n_items)) * rate[:, None]
    scores = _draw_scores(logging, relevance, n_rankers, rng)
    target = KindScores(3 * (relevance + rng.normal(0, 0.1, relevance.shape)))
    world = ImpressionSimulation(
        log=None,  # type: ignore[arg-type]
        user_model=_find_user_model(users, _check_examination(examination, n_slots)),
        relevance=relevance,
        activity=1 + (requests_per_user - 1) * rate,
        logging=logging,
        logging_scores=scores,
        target=target,
        n_users=n_users,
        n_slots=n_slots,
    )
    object.__setattr__(world, "log", world.draw(rng))
    return world


def _draw_scores(
    logging: LoggingPolicy, relevance: Matrix, n_rankers: int, rng: np.random.Generator
) -> Matrix:
    """Scores behind the logging policy; those of rankers are almost unrelated to relevance."""
    if logging == "uniform":
        return np.zeros_like(relevance)
    if logging == "rankers":
        return relevance + rng.normal(0, 0.5, (n_rankers, *relevance.shape))
    return relevance + rng.normal(0, 0.5, relevance.shape)


def _check_examination(examination: npt.ArrayLike | None, n_slots: int) -> tuple[float, ...]:
    if examination is None:
        return tuple(1 / k for k in range(1, n_slots + 1))
    return _read_shares(examination, n_slots)


def _read_shares(examination: npt.ArrayLike, n_slots: int | None = None) -> tuple[float, ...]:
    curve = float_array(examination, "examination")
    n_slots = curve.size if n_slots is None else n_slots
    if curve.shape != (n_slots,) or not n_slots or not ((curve > 0) & (curve <= 1)).all():
        raise UsageError(
            "`examination` must have a number in (0, 1] for each of "
            f"{count_noun(n_slots, 'slot')}; got {curve.tolist()}.",
            parameter="examination",
            value=curve.tolist(),
            remedy="Leave `examination` out for 1 / position.",
        )
    return tuple(curve.tolist())


def _find_user_model(
    users: Literal["position", "cascade", "general"] | UserModel, examination: tuple[float, ...]
) -> UserModel:
    if not isinstance(users, str) and hasattr(users, "draw_clicks"):
        return users
    models: dict[str, Callable[[], UserModel]] = {
        "position": lambda: PositionBasedUsers(examination),
        "cascade": CascadeUsers,
        "general": lambda: GeneralUsers(examination),
    }
    OneOf(tuple(models))("users", users)
    return models[str(users)]()
