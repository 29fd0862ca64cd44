"""What every model shares: settings by name, as scikit-learn has them, and a representation that shows the changed ones."""

from __future__ import annotations

import inspect
from typing import Any, Self

from unskew.errors import NotFittedError, UnknownNameError


class Configured:
    """Settings are the arguments of ``__init__``, kept under their own names; what a fit finds ends in ``_``."""

    def get_params(self, deep: bool = True) -> dict[str, Any]:  # noqa: ARG002
        """The arguments of ``__init__``."""
        return {name: getattr(self, name) for name in self._defaults()}

    def set_params(self, **params: Any) -> Self:
        """Change arguments by name, as scikit-learn does."""
        for name, value in params.items():
            if name not in self._defaults():
                raise UnknownNameError("parameter", name, self._defaults())
            setattr(self, name, value)
        return self

    def fitted_state(self) -> dict[str, Any]:
        """What the fit found, by name: arrays, ids, numbers, records of them, or other fitted things."""
        return {
            name: value
            for name, value in vars(self).items()
            if name.endswith("_") and not name.startswith("_")
        }

    def require_fit(self) -> None:
        """Refuse to go on without a fit."""
        if not self.fitted_state():
            raise NotFittedError(f"{self!r} is not fitted yet: call fit first.")

    def check_restored(self) -> str | None:
        """What is wrong with a state read from a file, or None where its parts belong together."""
        return None

    def __repr__(self) -> str:
        changed = (
            f"{name}={value!r}"
            for name, value in self.get_params().items()
            if self._is_changed(name, value)
        )
        return f"{type(self).__name__}({', '.join(changed)})"

    def _is_changed(self, name: str, value: object) -> bool:
        default = self._defaults()[name]
        return value is not default and (type(value) is not type(default) or bool(value != default))

    @classmethod
    def _defaults(cls) -> dict[str, Any]:
        return {name: field.default for name, field in inspect.signature(cls).parameters.items()}
