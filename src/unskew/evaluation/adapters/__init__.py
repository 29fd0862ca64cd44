"""Fitted models of other libraries, as predictions.

One adapter for each library turns a fitted model into an
:class:`~unskew.evaluation.adapters.external.ExternalModel`. A library is recognised by the module
of the model's class, so that nothing is imported which is not there already.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from unskew.registry import Registry

if TYPE_CHECKING:
    from unskew.evaluation.adapters.external import ExternalModel, Wrapping

Adapter: TypeAlias = "Callable[[Any, Wrapping], ExternalModel]"

ADAPTERS: Registry[Adapter] = Registry("adapter", "unskew.evaluation.adapters")
"""Traits: ``module`` (a model belongs to the library if one of its classes is defined there) and
``takes`` (the arguments of :func:`unskew.evaluation.wrap_model` that it can use, beside
``fallback``)."""
