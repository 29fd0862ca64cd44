"""Which column of a table has which role: by name, by our default, or by a common name.

In a log of ratings, columns of positions have no common name: a column called ``position`` may say
where an item was shown, which is not the position that a model gives it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Integral

from unskew.errors import AmbiguousColumnError, ColumnError

DEFAULTS: Mapping[str, str] = {
    "user": "user_id",
    "item": "item_id",
    "rating": "rating",
    "prediction": "prediction",
    "propensity": "propensity",
    "timestamp": "timestamp",
    "request": "request_id",
    "position": "position",
    "reward": "reward",
}

COMMON_NAMES: Mapping[str, frozenset[str]] = {
    "user": frozenset(
        "user userid uid u userno userindex customer customerid visitor visitorid "
        "member memberid reviewerid".split()
    ),
    "item": frozenset(
        "item itemid iid i itemno itemindex movie movieid film filmid song songid track trackid "
        "artistid product productid asin parentasin sku book bookid isbn game gameid "
        "article articleid newsid video videoid businessid joke jokeid".split()
    ),
    "rating": frozenset("rating ratings r stars star ratingvalue userrating overall".split()),
    "prediction": frozenset("prediction predictions predicted pred yhat est estimate".split()),
    "propensity": frozenset("propensity propensities".split()),
    "timestamp": frozenset("timestamp time date datetime ts unixtime ratedat".split()),
    "request": frozenset("request requestid reqid req impressionid slateid searchid".split()),
    "position": frozenset("position pos slot rank shownposition".split()),
    "reward": frozenset("reward click clicked clicks isclick isclicked".split()),
}
"""Names that are common in public data sets; capitals, spaces and underscores do not count."""

CLICKS = " If every row is a click, pass `rating=1`."
"""What to do if a log has no ratings, where a number can take the place of their column."""

IMPRESSIONS = " If rows are shown items with clicks, use unskew.Impressions.from_frame(frame)."
IMPRESSIONS_IN_SHELL = (
    " If rows are shown items with clicks, use `unskew validate --impressions` and `unskew policy`."
)
"""What to do if a log of shown items is read as one of ratings."""

RATING_ROLES = ("user", "item", "rating", "prediction", "propensity", "timestamp")
"""Roles of the columns of a log of ratings; the others are of logged impressions."""


def find_column(
    role: str, name: str | None, columns: Sequence[str], *, takes_number: bool = False
) -> str:
    """The column with a role: ``name`` if it is given, else our default, else a common name.

    ``takes_number`` says that the caller also accepts one rating for all rows.
    """
    if name is not None:
        if not isinstance(name, str | Integral) or name not in columns:
            raise ColumnError(
                f"there is no column {name!r} for `{role}=`; "
                f"the columns are {_join_names(columns)}.",
                parameter=role,
                value=name,
            )
        return name
    if role not in DEFAULTS:
        raise ColumnError(f"`{role}` names no column: got None.", parameter=role)
    if DEFAULTS[role] in columns:
        return DEFAULTS[role]
    candidates = [column for column in columns if _simplify(column) in COMMON_NAMES[role]]
    if len(candidates) > 1:
        raise AmbiguousColumnError(
            f"several columns could be the {role}: {_join_names(candidates)}.",
            parameter=role,
            value=candidates,
            remedy=f"Choose one, for example `{role}={candidates[0]!r}`.",
        )
    if not candidates:
        hint = shell_hint = CLICKS if takes_number and role == "rating" else ""
        if role == "rating" and all(has_column(each, columns) for each in ("position", "reward")):
            hint, shell_hint = IMPRESSIONS, IMPRESSIONS_IN_SHELL
        remedy = f"Pass `{role}=...` to name one of them."
        raise ColumnError(
            f"no column looks like the {role} (default {DEFAULTS[role]!r}); "
            f"the columns are {_join_names(columns)}.",
            parameter=role,
            value=list(columns),
            remedy=remedy + hint,
            shell_remedy=remedy + shell_hint,
        )
    return candidates[0]


def has_column(role: str, columns: Sequence[str]) -> bool:
    """Whether at least one column has a common name for the role."""
    try:
        find_column(role, None, columns)
    except ColumnError as error:
        return isinstance(error, AmbiguousColumnError)
    return True


def _simplify(name: str) -> str:
    return "".join(letter for letter in str(name).lower() if letter.isalnum())


def _join_names(names: Sequence[str]) -> str:
    return ", ".join(repr(name) for name in names) or "(none)"
