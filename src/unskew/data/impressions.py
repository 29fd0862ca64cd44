"""Impressions: which item was shown to whom at which position, and what it earned.

Request r of a user shows the slate s = (s_1, ..., s_K). The reward of slot k is c_k. A logged
probability is one of three different numbers, which logs confuse:

    slate      mu(s)                           the probability of the whole slate
    step       mu(s_k given s_1, ..., s_k-1)   their product over k is that of the slate
    marginal   mu_k(a) = P(s_k = a)            over all slates

If slots are filled independently (``"product"``), step and marginal are the same. With one slot,
all three are. In any other log they differ, and no check of the log can tell them apart row by row.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, Literal, TypeAlias, cast, get_args

import numpy as np
import numpy.typing as npt

from unskew.data.cells import cell_numbers, user_and_item
from unskew.data.checks import float_array, row_number, row_numbers
from unskew.data.columns import find_column, has_column
from unskew.data.frames import (
    check_same_order,
    id_column,
    make_frame,
    number_column,
    number_columns,
    open_frame,
)
from unskew.data.ids import (
    Ids,
    as_ids,
    check_codes,
    encode_ids,
    find_codes,
    format_id,
    require_no_missing_ids,
)
from unskew.data.impression_checks import (
    REMEDIES,
    check_clicks,
    check_positions,
    check_probabilities,
    check_requests,
    check_rewards,
    check_slots,
    drop_copies,
)
from unskew.data.ratings import Ratings
from unskew.data.universe import Universe
from unskew.errors import (
    BadImpressionError,
    ColumnError,
    EmptyLogError,
    UsageError,
)
from unskew.settings import (
    Flag,
    Instance,
    OneOf,
    WholeNumber,
    describe,
    require_list,
    require_name,
)
from unskew.tables import PREVIEW, count_noun, html_preview
from unskew.types import IntVector, Vector

ProbabilityKind: TypeAlias = Literal["step", "marginal", "slate", "product"]
"""What a logged probability is the probability of."""
SlotRows: TypeAlias = npt.NDArray[np.int64]
"""Requests x slots: the row that shows each slot, -1 if the log has none."""
MAX_EMPTY_SHARE = 64
"""With more slots than this for each shown item, positions are no places in a slate."""
_ARRAYS = ("request", "user", "item", "position", "reward", "probability")


@dataclass(frozen=True, eq=False, repr=False)
class Impressions:
    """Shown items: int32 codes of requests, users and items, positions from 1 on, and rewards.

    Build it with :meth:`from_frame` or :meth:`from_arrays`; rows keep their order. Code c of a
    request, user or item stands for the id ``requests[c]``, ``users[c]`` or ``items[c]``. A (user,
    item) may occur in many requests.

    >>> shown = Impressions.from_arrays(
    ...     request=[1, 1, 2], user=["ann", "ann", "bob"], item=["up", "heat", "up"],
    ...     position=[1, 2, 1], reward=[0, 1, 1],
    ... )
    >>> shown
    Impressions(3 impressions in 2 requests of 2 users, 2 items, 2 slots; mean reward 1 a request)
    """

    request: IntVector
    user: IntVector
    item: IntVector
    position: IntVector
    reward: Vector
    requests: Ids
    users: Ids
    items: Ids
    probability: Vector | None = None
    """With which probability each item was shown; None if the log does not say."""
    probability_is: ProbabilityKind | None = None
    """What ``probability`` is the probability of; None if there is none."""
    other: Mapping[str, Vector] = field(default_factory=dict)
    """Further columns of numbers by name, such as target probabilities; NaN where missing."""
    columns: Mapping[str, str] = field(default_factory=dict)
    """The column of the caller's frame for each role."""
    backend: str | None = None
    """The data frame library that :meth:`to_frame` uses."""
    repeats: bool = False
    """Whether a slate may show an item more than once."""
    n_copies: int = 0
    """Rows that were dropped because they repeat an earlier row in every column."""

    def __post_init__(self) -> None:
        for kind in ("request", "user", "item"):
            ids = as_ids(getattr(self, f"{kind}s"), f"{kind}s")
            require_no_missing_ids(ids, kind=kind)
            object.__setattr__(self, f"{kind}s", ids)
            object.__setattr__(self, kind, check_codes(getattr(self, kind), len(ids), kind=kind))
        for name in ("position", "reward", "probability"):
            if getattr(self, name) is not None:
                _require_row_values(name, getattr(self, name), self.request.size)
        if self.probability_is is not None:
            OneOf(get_args(ProbabilityKind))("probability_is", self.probability_is)
        Instance(Mapping, remedy="Pass columns by name.")("other", self.other)
        for name, values in self.other.items():
            Instance(str)("other", name)
            _require_row_values(f"other[{name!r}]", values, self.request.size)
        WholeNumber()("n_copies", self.n_copies)
        Flag()("repeats", self.repeats)
        for name in _ARRAYS:
            if getattr(self, name) is not None:
                view = getattr(self, name).view()
                view.setflags(write=False)
                object.__setattr__(self, name, view)

    @classmethod
    def from_frame(
        cls,
        frame: object,
        *,
        request: str | None = None,
        user: str | None = None,
        item: str | None = None,
        position: str | None = None,
        reward: str | None = None,
        probability: str | None = None,
        probability_is: ProbabilityKind | None = None,
        clicks: object = None,
        keep: Sequence[str] | None = None,
        repeats: bool = False,
    ) -> Impressions:
        """From any eager data frame: pandas, polars, pyarrow and whatever else narwhals reads.

        Parameters
        ----------
        frame
            One shown item a row.
        request, user, item, position, reward
            Names of the columns. The defaults are ``request_id``, ``user_id``, ``item_id``,
            ``position`` and ``reward``, else a column with a common name, such as ``clicked``.
            Without a column of positions, each request must show one item, at position 1. Without
            columns of requests and positions, each row is a request.
        probability
            Name of the column of logged probabilities. None: the log has none.
        probability_is
            What they are the probability of: ``"step"``, the item given those shown above it;
            ``"marginal"``, the item at this position over all slates; ``"slate"``, the whole slate;
            ``"product"``, both step and marginal, because slots are filled independently. There is
            no default if a request shows several items.
        clicks
            A frame of clicked items with the columns ``request`` and ``item``, in place of
            ``reward``: a shown item earns 1 if it was clicked at least once.
        keep
            Names of further columns of numbers, such as target probabilities. By default all.
        repeats
            Whether a slate may show an item more than once, as with ``"product"``.
        """
        table = open_frame(frame)
        names = {"request": request, "user": user, "item": item}
        names |= {"position": position, "reward": reward}
        columns = find_impression_columns(names, table.columns, has_clicks=clicks is not None)
        if probability is not None:
            columns["probability"] = find_column("probability", probability, table.columns)
        other = _list_other(table.columns, columns, keep)
        numbers = {
            role: number_column(table, columns[role], error_type=BadImpressionError)
            for role in ("position", "reward", "probability")
            if role in columns
        }
        ids = {
            role: id_column(
                table, columns[role], error_type=BadImpressionError, remedy=REMEDIES[role]
            )
            for role in ("request", "user", "item")
            if role in columns
        }
        if "request" not in ids:
            ids["request"] = np.arange(len(ids["user"]))
        if clicks is not None:
            numbers["reward"] = _find_clicks(clicks, columns, ids["request"], ids["item"])
        shown = cls.from_arrays(
            **ids,
            **numbers,
            probability_is=probability_is,
            other=number_columns(
                table, other, only_numbers=keep is None, error_type=BadImpressionError
            ),
            repeats=repeats,
        )
        object.__setattr__(shown, "columns", columns)
        object.__setattr__(shown, "backend", table.implementation.value)
        return shown

    @classmethod
    def from_arrays(
        cls,
        request: npt.ArrayLike,
        user: npt.ArrayLike,
        item: npt.ArrayLike,
        reward: npt.ArrayLike,
        *,
        position: npt.ArrayLike | None = None,
        probability: npt.ArrayLike | None = None,
        probability_is: ProbabilityKind | None = None,
        other: Mapping[str, npt.ArrayLike] | None = None,
        repeats: bool = False,
    ) -> Impressions:
        """From aligned columns of ids and numbers; the arguments are as in :meth:`from_frame`.

        ``other`` has further columns by name.
        """
        Flag()("repeats", repeats)
        Instance(Mapping, "Pass a dict of columns by name.", allow_none=True)("other", other)
        if reward is None:
            raise BadImpressionError(
                "`reward` is None, but every impression needs a reward.",
                parameter="reward",
                remedy="Pass a number for each row, such as 1 for a click and 0 for none.",
            )
        numbers: dict[str, Any] = {"reward": reward, "position": position}
        numbers |= {"probability": probability} | dict(other or {})
        values = {
            name: float_array(column, f"{name}s" if name in _ARRAYS else name, BadImpressionError)
            for name, column in numbers.items()
            if column is not None
        }
        ids = {
            "request": as_ids(request, "request"),
            "user": as_ids(user, "user"),
            "item": as_ids(item, "item"),
        }
        _require_same_length(ids | values)
        check_same_order({"request": request, "user": user, "item": item} | numbers)
        if values["reward"].size == 0:
            raise EmptyLogError("the log has no impressions.", remedy="Check its filter or file.")
        codes = {
            kind: encode_ids(
                column, None, kind=kind, error_type=BadImpressionError, remedy=REMEDIES[kind]
            )
            for kind, column in ids.items()
        }
        if "position" not in values:
            values["position"] = np.ones(len(ids["request"]))
        positions = check_positions(values.pop("position"), is_stated=position is not None)
        shown = cls(
            request=codes["request"][0],
            user=codes["user"][0],
            item=codes["item"][0],
            position=positions,
            reward=values.pop("reward"),
            requests=codes["request"][1],
            users=codes["user"][1],
            items=codes["item"][1],
            probability=values.pop("probability", None),
            probability_is=probability_is,
            other=values,
            repeats=repeats or (isinstance(probability_is, str) and probability_is == "product"),
        )
        return shown._check(is_position_stated=position is not None)

    def _check(self, *, is_position_stated: bool) -> Impressions:
        """The log without copies of rows; an error if something in it is impossible."""
        if self.probability_is is not None:
            OneOf(get_args(ProbabilityKind))("probability_is", self.probability_is)
        check_rewards(self)
        check_probabilities(self)
        check_requests(self)
        shown = drop_copies(self)
        check_slots(shown, is_position_stated=is_position_stated)
        if shown.probability is not None and shown.probability_is is None:
            return shown._replace_valid(probability_is="product")  # one slot: all kinds are equal
        return shown

    @property
    def n_requests(self) -> int:
        return len(self.requests)

    @property
    def n_users(self) -> int:
        return len(self.users)

    @property
    def n_items(self) -> int:
        return len(self.items)

    @cached_property
    def n_slots(self) -> int:
        """K: the largest position in the log."""
        return int(self.position.max())

    @cached_property
    def slots(self) -> SlotRows:
        """Requests x slots: the row that shows each slot, -1 if the log has none."""
        if self.n_requests * self.n_slots > MAX_EMPTY_SHARE * len(self) + (1 << 20):
            row = int(self.position.argmax())
            raise BadImpressionError(
                f"positions reach {self.n_slots:,}, but a request shows "
                f"{len(self) / self.n_requests:.3g} items on average; the largest is at "
                f"{self.name_row(row)}.",
                parameter="position",
                value=self.n_slots,
                where=self.name_row(row),
                remedy="Number the slots of each request 1, 2, ..., or drop the lowest positions.",
            )
        rows = np.full((self.n_requests, self.n_slots), -1, dtype=np.int64)
        rows[self.request, self.position - 1] = np.arange(len(self))
        return rows

    @cached_property
    def user_of_request(self) -> IntVector:
        """The user code of each request code."""
        users = np.empty(self.n_requests, dtype=np.int32)
        users[self.request] = self.user
        return users

    @cached_property
    def slate_size(self) -> IntVector:
        """The number of items that each request shows."""
        return np.bincount(self.request, minlength=self.n_requests).astype(np.int32)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the rows: who was shown what, at which position, and the reward."""
        digest = hashlib.sha256()
        for name in ("request", "user", "item", "position", "reward"):
            digest.update(np.ascontiguousarray(getattr(self, name)).data)
        return digest.hexdigest()

    @property
    def is_complete(self) -> bool:
        """Whether the positions of each request are 1, 2, ... without gaps."""
        last = np.zeros(self.n_requests, dtype=np.int32)
        np.maximum.at(last, self.request, self.position)
        return bool((last == self.slate_size).all())

    def column(self, name: str, parameter: str) -> Vector:
        """A further column by name; ``parameter`` is the argument that names it."""
        require_name(
            "column of the log",
            name,
            self.other,
            parameter=parameter,
            remedy="Impressions.from_frame keeps further columns if they have numbers; "
            "Impressions.from_arrays takes them as other={name: values}.",
        )
        return self.other[name]

    def take(self, requests: npt.NDArray[np.integer]) -> Impressions:
        """The log of some requests (distinct codes), with the same users and items."""
        requests = row_numbers(requests, self.n_requests, parameter="requests")
        code = np.full(self.n_requests, -1, dtype=np.int32)
        code[requests] = np.arange(len(requests), dtype=np.int32)
        rows = np.flatnonzero(code[self.request] >= 0)
        changes: dict[str, Any] = {
            name: getattr(self, name)[rows] for name in _ARRAYS if getattr(self, name) is not None
        }
        changes["request"] = code[self.request[rows]]
        other = {name: column[rows] for name, column in self.other.items()}
        return self._replace_valid(**changes, requests=self.requests[requests], other=other)

    def to_cells(self, examination: Any) -> Ratings:
        """The relevance of each user and item, as a log of ratings: clicks over examination.

            E_c = sum of th over the impressions of cell c,   rating = clicks / E_c

        It is unbiased for the relevance g if clicks have the mean th_k g, and can exceed 1. Its
        variance is about g / E_c, so pass ``cells.examination_weights()`` to ``fit``.
        :func:`unskew.evaluate` reads such ratings as relevances: it interpolates each metric
        between irrelevant (0) and relevant (1).

        Parameters
        ----------
        examination
            The examination of positions 1, 2, ..., or a fitted :class:`unskew.PositionBias`.
        """
        curve = read_examination(examination)
        examined = np.append(curve, np.nan)[np.minimum(self.position - 1, curve.size)]
        is_missing = np.isnan(examined)
        if is_missing.any():
            row = int(is_missing.argmax())
            raise UsageError(
                f"`examination` has no value for position {self.position[row]}, which "
                f"{self.name_row(row)} has.",
                parameter="examination",
                where=self.name_row(row),
                remedy="Estimate the curve from a log that has all positions.",
            )
        numbers = cell_numbers(self.user, self.item, self.n_items)
        cells, cell_of_row = np.unique(numbers, return_inverse=True)
        looks = np.bincount(cell_of_row, examined).astype(np.float64)
        clicks = np.bincount(cell_of_row, self.reward)
        user, item = user_and_item(cells, self.n_items)
        return Ratings(
            user,
            item,
            clicks / looks,
            self.users,
            self.items,
            universe=Universe(self.n_users, self.n_items),
            backend=self.backend,
            examination=looks,
        )

    def name_row(self, row: int) -> str:
        """``row 3 (request 7, item 'up', position 2)``: how errors refer to an impression."""
        row = row_number(row, len(self))
        request, item = self.requests[self.request[row]], self.items[self.item[row]]
        return (
            f"row {row} (request {format_id(request)}, item {format_id(item)}, "
            f"position {self.position[row]})"
        )

    def to_frame(self, backend: str | None = None) -> Any:
        """The log as a data frame, with the column names and in the library that it came from."""
        columns = self._name_columns(slice(None)) | dict(self.other)
        return make_frame(columns, self.backend if backend is None else backend)

    def _name_columns(self, rows: slice) -> dict[str, Any]:
        """Some rows, with the column names of the caller's frame."""
        values: dict[str, Any] = {
            "request": self.requests[self.request[rows]],
            "user": self.users[self.user[rows]],
            "item": self.items[self.item[rows]],
            "position": self.position[rows],
            "reward": self.reward[rows],
        }
        if self.probability is not None:
            values["probability"] = self.probability[rows]
        return {self.columns.get(role, role): column for role, column in values.items()}

    def _replace_valid(self, **changes: Any) -> Impressions:
        """A copy with other values that are known to be valid."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return type(self)(**(values | changes))

    def __len__(self) -> int:
        return self.reward.size

    def __repr__(self) -> str:
        kind = "" if self.probability is None else f"; {self.probability_is} probabilities"
        return (
            f"Impressions({count_noun(len(self), 'impression')} in "
            f"{count_noun(self.n_requests, 'request')} of {count_noun(self.n_users, 'user')}, "
            f"{count_noun(self.n_items, 'item')}, {count_noun(self.n_slots, 'slot')}; "
            f"mean reward {self.reward.sum() / self.n_requests:.4g} a request{kind})"
        )

    def _repr_html_(self) -> str:
        columns = {name: each.tolist() for name, each in self._name_columns(PREVIEW).items()}
        return html_preview(repr(self), columns, len(self))


def find_impression_columns(
    names: Mapping[str, str | None], columns: Sequence[str], *, has_clicks: bool
) -> dict[str, str]:
    """The column of each role; a role that a log can do without is left out if none looks like it.

    A log without positions has one item in each request, and one without requests too is a log of
    a contextual bandit, whose rows are requests.
    """
    optional = {role for role in ("position",) if names[role] is None}
    if names["request"] is None and not has_column("position", columns) and "position" in optional:
        optional.add("request")
    if has_clicks:
        if names["reward"] is not None:
            raise ColumnError(
                "`reward` and `clicks` are both given.",
                parameter="clicks",
                remedy="Leave one of them out.",
            )
        names = {role: name for role, name in names.items() if role != "reward"}
    return {
        role: find_column(role, name, columns)
        for role, name in names.items()
        if role not in optional or has_column(role, columns)
    }


def _require_row_values(name: str, values: object, n_rows: int) -> None:
    """Compiled code reads these arrays without a check."""
    Instance(np.ndarray)(name, values)
    array = cast(npt.NDArray[Any], values)
    kinds = "iu" if name == "position" else "biuf"
    if array.shape != (n_rows,) or array.dtype.kind not in kinds:
        raise BadImpressionError(
            f"`{name}` must have one number for each of {n_rows} rows; got {array.dtype} of shape "
            f"{array.shape}.",
            parameter=name,
        )
    if name == "position" and array.size and array.min() < 1:
        raise BadImpressionError(
            f"`position` must be at least 1; got {array.min()}.", parameter="position"
        )


def _list_other(
    names: Sequence[str], columns: Mapping[str, str], keep: Sequence[str] | None
) -> list[str]:
    """The further columns to read: those that the caller names, or all without a role."""
    if keep is None:
        return [name for name in names if name not in columns.values()]
    require_list("keep", keep, of="columns")
    return [find_column("keep", name, names) for name in keep]


def _find_clicks(clicks: object, columns: Mapping[str, str], request: Ids, item: Ids) -> Vector:
    """1 for each shown item that was clicked at least once, else 0."""
    if "request" not in columns:
        raise ColumnError(
            "`clicks` needs a column of requests in both frames.",
            parameter="request",
            remedy="Name it with `request=...`.",
        )
    table = open_frame(clicks)
    try:
        names = [find_column(role, columns[role], table.columns) for role in ("request", "item")]
    except ColumnError as error:
        error.problem = f"in the table of clicks, {error.problem}"
        error.remedy = "Name its columns of requests and items as in the log."
        raise
    clicked_request, clicked_item = (
        id_column(table, name, error_type=BadImpressionError) for name in names
    )
    requests, items = (encode_ids(ids, None, kind="id") for ids in (request, item))
    request_code = find_codes(clicked_request, requests[1])
    item_code = find_codes(clicked_item, items[1])
    size = len(items[1])
    shown = requests[0].astype(np.int64) * size + items[0]
    clicked = np.where(
        (request_code < 0) | (item_code < 0), -1, request_code.astype(np.int64) * size + item_code
    )
    check_clicks(clicked, shown, clicked_request, clicked_item)
    return np.isin(shown, clicked).astype(np.float64)


def _require_same_length(columns: Mapping[str, npt.NDArray[Any]]) -> None:
    shapes = {name: column.shape for name, column in columns.items()}
    if len(set(shapes.values())) > 1:
        listed = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
        raise BadImpressionError(f"all columns must have one length; got {listed}.")


def read_examination(examination: object) -> Vector:
    """The examination of positions 1, 2, ..., from numbers or from a fitted ``PositionBias``.

    It is NaN for a position that the model does not know.
    """
    is_model = hasattr(type(examination), "examination")
    values: Any = examination.examination if is_model else examination  # type: ignore[attr-defined]
    curve = float_array(values, "examination")
    if curve.ndim != 1 or not curve.size or not (np.isfinite(curve) & (curve > 0)).all():
        raise UsageError(
            "`examination` must be a list of positive numbers, one for each position; got "
            f"{describe(curve.tolist())}.",
            parameter="examination",
            value=curve.tolist(),
            remedy="Pass a list from the top position down, or a fitted PositionBias.",
        )
    positions = np.asarray(getattr(examination, "positions", np.arange(1, curve.size + 1)))
    by_position = np.full(int(positions.max()), np.nan)
    by_position[positions - 1] = curve
    return by_position
