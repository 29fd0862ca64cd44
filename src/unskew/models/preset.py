"""Recommenders with some settings fixed."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from unskew.errors import (
    UsageError,
)
from unskew.models.recommender import Recommender


@dataclass(frozen=True, eq=False, repr=False)
class Preset:
    """A recommender with some settings fixed; calling it returns a model that is not fitted."""

    name: str
    """The name under which Python exports the preset."""
    model: type[Recommender]
    fixed: Mapping[str, Any] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """Settings that differ from the model's own defaults, and can be changed."""

    def __post_init__(self) -> None:
        fixed = ", ".join(f"{name}={value!r}" for name, value in self.fixed.items())
        object.__setattr__(self, "__name__", self.name)
        object.__setattr__(self, "__doc__", f"{self.model.__name__} with {fixed}.")
        object.__setattr__(self, "__signature__", self._make_signature())

    def __call__(self, *arguments: Any, **settings: Any) -> Any:
        for name, value in settings.items():
            if name in self.fixed:
                raise UsageError(
                    f"{self.name} fixes {name}={self.fixed[name]!r}.",
                    parameter=name,
                    value=value,
                    remedy=f"Use {self.model.__name__} to choose it.",
                )
        chosen = inspect.signature(self).bind(*arguments, **settings).arguments
        return self.model(**{**self.fixed, **self.defaults, **chosen})

    def _make_signature(self) -> inspect.Signature:
        parameters = inspect.signature(self.model).parameters
        return inspect.Signature(
            [
                parameter.replace(default=self.defaults.get(name, parameter.default))
                for name, parameter in parameters.items()
                if name not in self.fixed
            ]
        )

    def __repr__(self) -> str:
        return self.name
