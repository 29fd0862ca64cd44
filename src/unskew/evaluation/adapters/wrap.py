"""How a model of another library is recognised, and what its caller has to say about it."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping, Set
from typing import Any

import numpy as np
import numpy.typing as npt

from unskew.data.ids import Ids, check_id_list
from unskew.errors import BadPredictionError, UsageError
from unskew.evaluation.adapters import ADAPTERS, Adapter
from unskew.evaluation.adapters.external import ExternalModel, Kind, Wrapping
from unskew.registry import Declaration
from unskew.settings import is_finite_number


def wrap_model(
    model: object,
    *,
    users: npt.ArrayLike | None = None,
    items: npt.ArrayLike | None = None,
    user_features: object = None,
    item_features: object = None,
    fallback: float | None = None,
) -> ExternalModel:
    """A fitted model of another library, with what it does not know itself.

    Models that keep the ids of users and items need no wrapping: :func:`unskew.evaluate` takes
    them as they are. ``unskew.evaluation.ADAPTERS`` lists the libraries.

    Parameters
    ----------
    model
        The fitted model.
    users, items
        The ids behind the model's codes 0, 1, 2, ..., in this order.
    user_features, item_features
        For a scikit-learn model that predicts from features: frames with a column of ids, or arrays
        in the order of ``users`` and ``items``. A pair's features are those of its user, then those
        of its item; if the model was fitted to named columns, these are taken by name. For
        LightFM: the matrices that it was fitted with.
    fallback
        What to predict for users and items that the model does not know, in place of the library's
        own default or of an error. ``-math.inf`` ranks them last.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import LinearRegression
    >>> ages, prices = np.array([[20.0], [60.0]]), np.array([[1.0], [2.0], [5.0]])
    >>> fitted = LinearRegression().fit([[20, 1], [60, 1], [20, 5]], [4, 2, 3])
    >>> model = wrap_model(
    ...     fitted, users=["ann", "bob"], items=["x", "y", "z"],
    ...     user_features=ages, item_features=prices,
    ... )
    >>> model.predict(["ann", "bob"], ["z", "z"]).round(3)
    array([3., 1.])
    """
    passed = {
        "users": users,
        "items": items,
        "user_features": user_features,
        "item_features": item_features,
    }
    has_features = user_features is not None or item_features is not None
    library = find_library(model) or (ADAPTERS["sklearn"] if has_features else None)
    if library is None:
        raise BadPredictionError(
            f"a {type(model).__name__} is not a model of a known library.",
            parameter="model",
            value=type(model).__name__,
            remedy=f"{describe_libraries()} Of other models, pass a callable that gets user ids "
            "and item ids.",
        )
    for name, value in passed.items():
        if value is not None and name not in library.traits["takes"]:
            raise UsageError(
                f"models of {library.label} do not take `{name}`.",
                parameter=name,
                remedy="They keep their own ids: leave it out."
                if name in ("users", "items")
                else "Leave it out.",
            )
    wrapping = Wrapping(
        library.label,
        None if users is None else _list_ids(users, "user"),
        None if items is None else _list_ids(items, "item"),
        user_features,
        item_features,
        _check_fallback(fallback),
    )
    return library.target(model, wrapping)


def _list_ids(values: npt.ArrayLike, kind: Kind) -> Ids:
    """Ids in the order of the codes, which dictionaries and sets do not say."""
    if isinstance(values, Mapping | Set):
        raise UsageError(
            f"`{kind}s` is a {type(values).__name__}, which does not list ids in the order of the "
            "codes.",
            parameter=f"{kind}s",
            value=type(values).__name__,
            remedy="Pass a list or an array: first the id of code 0, then that of code 1, ...",
        )
    return check_id_list(values, kind=kind)


def adapt_model(model: object) -> object:
    """A model of a known library as one that predicts pairs of ids; anything else as it is."""
    if isinstance(model, np.ndarray | list | tuple | ExternalModel):
        return model
    return model if find_library(model) is None else wrap_model(model)


def find_library(model: object) -> Declaration[Adapter] | None:
    """The library of the first class of the model that is defined in a known library.

    A class in between with ``predict(users, items)`` is the caller's own: it predicts ids.
    """
    for each in type(model).__mro__:
        for declaration in ADAPTERS.values():
            if f"{each.__module__}.".startswith(f"{declaration.traits['module']}."):
                return declaration
        if "predict" in vars(each) and _count_required(vars(each)["predict"]) == 3:
            return None
    return None


def describe_libraries() -> str:
    """The known libraries, as one sentence."""
    labels = [declaration.label for declaration in ADAPTERS.values()]
    return f"Fitted models of these libraries are known: {', '.join(labels)}."


def _count_required(function: Any) -> int:
    """The arguments without a default, including self."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return 0
    return sum(
        each.default is each.empty
        and each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)
        for each in parameters
    )


def _check_fallback(fallback: object) -> float | None:
    ranks_last = isinstance(fallback, float) and fallback == -math.inf
    is_number = is_finite_number(fallback) and not isinstance(fallback, bool)
    if fallback is None or is_number or ranks_last:
        return None if fallback is None else float(fallback)  # type: ignore[arg-type]
    raise UsageError(
        f"`fallback` must be a number; got {fallback!r}.",
        parameter="fallback",
        value=fallback,
        remedy="Pass what to predict for unknown users and items, or leave it out.",
    )
