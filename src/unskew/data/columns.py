"""Which column is which: names given, our defaults, or a spelling that is known in the wild."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from unskew.errors import ColumnError

DEFAULTS: Mapping[str, str] = {
    "user": "user_id",
    "item": "item_id",
    "rating": "rating",
    "prediction": "prediction",
    "propensity": "propensity",
    "position": "position",
}

SPELLINGS: Mapping[str, frozenset[str]] = {
    "user": frozenset(
        "user userid uid u userno userindex customer customerid visitor visitorid member memberid reviewerid".split()
    ),
    "item": frozenset(
        "item itemid iid i itemno itemindex movie movieid film filmid song songid track trackid artistid product productid "
        "asin parentasin sku book bookid isbn game gameid article articleid newsid video videoid businessid joke jokeid".split()
    ),
    "rating": frozenset("rating ratings r stars star ratingvalue userrating overall".split()),
    "prediction": frozenset("prediction predictions predicted pred yhat est estimate".split()),
    "propensity": frozenset("propensity propensities".split()),
    "position": frozenset("position positions rank".split()),
}


def find_column(role: str, given: str | None, columns: Sequence[str]) -> str:
    """The column that plays ``role``: ``given`` if named, else our default, else the one known spelling among ``columns``."""
    if given is not None:
        if given not in columns:
            raise ColumnError(
                f"there is no column {given!r} for {role}=; the columns are {_listed(columns)}."
            )
        return given
    if DEFAULTS[role] in columns:
        return DEFAULTS[role]
    candidates = [name for name in columns if _bare(name) in SPELLINGS[role]]
    if len(candidates) > 1:
        raise ColumnError(
            f"several columns could be the {role}: {_listed(candidates)}. Say which with {role}={candidates[0]!r}, for example."
        )
    if not candidates:
        raise ColumnError(
            f"no column looks like the {role} (default {DEFAULTS[role]!r}); name it with {role}=... from {_listed(columns)}."
        )
    return candidates[0]


def _bare(name: str) -> str:
    return "".join(letter for letter in str(name).lower() if letter.isalnum())


def _listed(names: Sequence[str]) -> str:
    return ", ".join(repr(name) for name in names) or "(none)"
