"""Everything unskew raises or warns about.

    UnskewError
    ├── DataError                   the data cannot be used as it is (exit code 3 on the command line)
    │   ├── ColumnError             a column is missing, or several could be meant
    │   ├── EmptyLogError           no rating at all
    │   ├── BadRatingError          a rating or an id is missing, NaN or infinite
    │   ├── DuplicateCellError      the same (user, item) twice
    │   ├── BadPropensityError      a propensity outside (0, 1], or not one for each logged cell
    │   ├── BadPredictionError      a prediction is missing, NaN, or not one for each logged cell
    │   ├── UniverseError           the number of users and items is unknown, or smaller than the log
    │   ├── BadFileError            a table's file is malformed, truncated, wrongly encoded, or has a value that cannot be used
    │   ├── DatasetNotFoundError    a data set's files are not where we looked
    │   ├── DatasetFormatError      a data set's file does not have the published form
    │   ├── UnknownIdError          a user or item that the model has never seen
    │   └── ModelFileError          a model file is damaged, altered, too large, or of a newer version
    ├── UsageError                  an argument that makes no sense, or arguments that do not go together
    │   ├── UnknownNameError        no metric, estimator or experiment of that name
    │   └── NotFittedError          a model was asked before it was fitted
    ├── GateError                   a result is beyond a limit that the caller set (exit code 4)
    └── MissingExtraError           an optional dependency is not installed

    UnskewWarning
    └── PropensityWarning           the weights say that the data can hardly answer

Every message says what is wrong, with the number and the place, and then what to do.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class UnskewError(Exception):
    """Root of all errors raised by unskew."""


class DataError(UnskewError, ValueError):
    """The data cannot be used as it is."""


class ColumnError(DataError):
    """A column is missing, or several could be meant."""


class EmptyLogError(DataError):
    """A log without a single rating."""


class BadRatingError(DataError):
    """A rating or an id is missing, NaN or infinite."""


class DuplicateCellError(DataError):
    """The same (user, item) occurs more than once."""


class BadPropensityError(DataError):
    """Propensities outside (0, 1], or not one for each logged cell."""


class BadPredictionError(DataError):
    """Predictions that are missing, NaN, or not one for each logged cell."""


class UniverseError(DataError):
    """The number of users and items is unknown, malformed, or smaller than the log."""


class BadFileError(DataError):
    """A table's file that is malformed, truncated or wrongly encoded, or a value in it that cannot be used."""


class DatasetNotFoundError(DataError, FileNotFoundError):
    """The files of a data set are not where we looked."""


class DatasetFormatError(DataError):
    """A file of a data set does not have the published form."""


class UsageError(UnskewError, ValueError):
    """Arguments that do not go together."""


class UnknownNameError(UsageError):
    """No metric, estimator or experiment of that name."""

    def __init__(self, kind: str, name: object, valid: Iterable[str]) -> None:
        names = list(valid)
        near = get_close_matches(str(name).lower(), names, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        super().__init__(f"unknown {kind} {name!r}; valid ones are: {', '.join(names)}.{hint}")


class NotFittedError(UsageError, AttributeError):
    """A model was asked to predict before it was fitted."""


class UnknownIdError(DataError, KeyError):
    """A user or item that the model has never seen."""

    __str__ = Exception.__str__


class ModelFileError(DataError):
    """A model file that is damaged, altered, too large, or of a newer version."""


class GateError(UnskewError):
    """A result is beyond a limit that the caller set."""


class MissingExtraError(UnskewError, ImportError):
    """An optional dependency is not installed."""

    def __init__(self, package: str, *, extra: str, purpose: str) -> None:
        super().__init__(
            f"{purpose} needs {package}, which is not installed. Add it with: pip install 'unskew[{extra}]'"
        )


class UnskewWarning(UserWarning):
    """Root of all warnings given by unskew."""


class PropensityWarning(UnskewWarning):
    """The weights say that the data can hardly answer."""
