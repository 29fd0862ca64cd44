"""Everything unskew raises or warns about.

    UnskewError
    ├── DataError                   the data cannot be used as they are (exit code 3)
    │   ├── ColumnError             a column is missing or unusable
    │   │   └── AmbiguousColumnError   several columns could have the same role
    │   ├── EmptyLogError           the log has no ratings
    │   ├── BadRatingError          a rating or an id is missing, NaN or infinite
    │   ├── DuplicateCellError      the same (user, item) occurs more than once
    │   ├── BadPropensityError      a propensity is outside (0, 1], or their number is wrong
    │   ├── BadPredictionError      a prediction is missing or NaN, or their number is wrong
    │   ├── BadImpressionError      a position, request or reward of an impression is impossible
    │   ├── NotIdentifiedError      the log does not determine what is to be estimated
    │   ├── UniverseError           the number of users and items is unknown or too small
    │   ├── BadFileError            a table file is malformed, truncated or wrongly encoded
    │   ├── DatasetNotFoundError    the files of a data set were not found
    │   ├── DatasetFormatError      a data set file differs from the published format
    │   ├── UnknownIdError          the model has never seen this user or item
    │   └── ModelFileError          a model file is damaged, altered, too large or too new
    ├── UsageError                  an argument is invalid, or arguments conflict (exit code 2)
    │   ├── UnknownNameError        no metric, estimator, model, ... has this name
    │   └── NotFittedError          the model must be fitted first
    ├── FileWriteError              a file cannot be written
    ├── MemoryLimitError            the work would need more memory than the limit
    ├── GateError                   a result exceeds a limit set by the caller (exit code 4)
    └── MissingExtraError           an optional dependency is not installed

    UnskewWarning
    ├── PropensityWarning           the weights are too uneven, or do not fit the universe
    └── ConvergenceWarning          a fit stopped before it converged

Errors and warnings are records: ``problem`` (what is wrong, with the number and the place),
``parameter``, ``value``, ``where`` and ``remedy`` (what to do). References to arguments are
written in backticks, such as ```universe=(n_users, n_items)```. Python shows them as
keyword arguments; the command line shows the same references as options.
"""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from typing import Any

from unskew.tables import escape_controls

ArgumentFormat = Callable[[str, str | None], str]
"""How a reference to an argument is shown, given its name and perhaps a value."""

_ARGUMENT = re.compile(r"`([A-Za-z_]\w*)(?:=([^`]*))?`")


def format_keyword(name: str, value: str | None) -> str:
    """An argument as a Python keyword.

    >>> format_keyword("level", "0.9"), format_keyword("level", None)
    ('level=0.9', 'level')
    """
    return name if value is None else f"{name}={value}"


class Message(Exception):  # noqa: N818 - warnings are messages too
    """The fields that errors and warnings share, and how they become text.

    Parameters
    ----------
    problem
        What is wrong, with the number and the place.
    parameter, value
        The argument or column that is wrong, and what was passed.
    where
        The row, cell or line in a file, such as ``"row 3 (user 'ann', item 7)"``.
    remedy
        What to do, as one or more sentences.
    shell_remedy
        What to do on the command line, where ``remedy`` only makes sense in Python.
    """

    def __init__(
        self,
        problem: str,
        *,
        parameter: str | None = None,
        value: object = None,
        where: str | None = None,
        remedy: str = "",
        shell_remedy: str | None = None,
    ) -> None:
        super().__init__(problem)
        self.problem = problem
        self.parameter = parameter
        self.value = value
        self.where = where
        self.remedy = remedy
        self.shell_remedy = shell_remedy

    def __str__(self) -> str:
        return self.render()

    def render(
        self,
        *,
        format_argument: ArgumentFormat = format_keyword,
        for_shell: bool = False,
        has_remedy: bool = True,
    ) -> str:
        """The problem and the remedy, each argument shown by ``format_argument``.

        Names and ids may come from strangers, so control characters are written out.
        """
        use_shell_remedy = for_shell and self.shell_remedy is not None
        remedy = self.shell_remedy if use_shell_remedy else self.remedy
        text = " ".join(part for part in (self.problem, remedy if has_remedy else "") if part)
        shown = _ARGUMENT.sub(lambda match: format_argument(match[1], match[2]), text)
        return "\n".join(map(escape_controls, shown.split("\n")))

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (type(self), self.args, self.__dict__)


def _restore(kind: type[Message], args: tuple[Any, ...], state: dict[str, Any]) -> Message:
    """Unpickle a message whose constructor takes other arguments than its fields."""
    message = kind.__new__(kind)
    message.args = args
    message.__dict__.update(state)
    return message


class UnskewError(Message):
    """Root of all errors raised by unskew."""


class DataError(UnskewError, ValueError):
    """The data cannot be used as they are."""


class ColumnError(DataError):
    """A column is missing or unusable."""


class AmbiguousColumnError(ColumnError):
    """Several columns could have the same role."""


class EmptyLogError(DataError):
    """The log has no ratings or impressions."""


class BadRatingError(DataError):
    """A rating or an id is missing, NaN or infinite."""


class DuplicateCellError(DataError):
    """The same (user, item) occurs more than once."""


class BadPropensityError(DataError):
    """A propensity is outside (0, 1], or there is not one for each observed cell."""


class BadPredictionError(DataError):
    """A prediction is missing or NaN, or there is not one for each observed cell."""


class BadImpressionError(DataError):
    """A value of a logged impression is missing or impossible."""


class NotIdentifiedError(DataError):
    """The log does not determine what is to be estimated."""


class UniverseError(DataError):
    """The number of users and items is unknown, malformed, or smaller than in the log."""


class BadFileError(DataError):
    """A table file is malformed, truncated or wrongly encoded, or holds an unusable value."""


class DatasetNotFoundError(DataError, FileNotFoundError):
    """The files of a data set were not found; ``dataset`` is its name, such as ``coat``."""

    __str__ = Message.__str__

    def __init__(self, problem: str, *, dataset: str, remedy: str = "") -> None:
        super().__init__(problem, value=dataset, remedy=remedy)
        self.dataset = dataset


class DatasetFormatError(DataError):
    """A data set file differs from the published format."""


class UsageError(UnskewError, ValueError):
    """An argument is invalid, or arguments conflict."""


class UnknownNameError(UsageError):
    """No metric, estimator, model or other member has this name."""

    def __init__(
        self,
        kind: str,
        name: object,
        valid: Iterable[str],
        *,
        parameter: str | None = None,
        remedy: str = "",
    ) -> None:
        """``kind`` says what has the name, such as ``metric``.

        ``parameter`` is the argument that has the name. Without it, a ``kind`` of one word is that
        argument, and the message says so.
        """
        names = list(valid)
        near = get_close_matches(str(name).lower(), names, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        problem = f"unknown {kind} {name!r}; valid names are"
        if parameter is None and kind.isidentifier():
            parameter = kind
            problem = f"unknown value {name!r} of `{kind}`; valid values are"
        problem = f"{problem}: {', '.join(names) or 'none'}.{hint}"
        super().__init__(problem, parameter=parameter, value=name, remedy=remedy)


class NotFittedError(UsageError, AttributeError):
    """The model must be fitted first."""

    __str__ = Message.__str__


class UnknownIdError(DataError, KeyError):
    """The model has never seen this user or item."""

    __str__ = Message.__str__


class ModelFileError(DataError):
    """A model file is damaged, altered, too large, or of a newer version."""


class FileWriteError(UnskewError, OSError):
    """A file cannot be written: the disk is full, or the folder is read-only, for example."""

    __str__ = Message.__str__


class MemoryLimitError(UnskewError, MemoryError):
    """The work would need more memory than the limit; nothing was started."""

    __str__ = Message.__str__


class GateError(UnskewError):
    """A result exceeds a limit that the caller set."""


class MissingExtraError(UnskewError, ImportError):
    """An optional dependency is not installed."""

    __str__ = Message.__str__

    def __init__(self, package: str, *, extra: str, purpose: str, alternative: str = "") -> None:
        install = f"Install it with: pip install 'unskew[{extra}]'"
        super().__init__(
            f"{purpose} needs {package}, which is not installed.",
            remedy=f"{install}. Or: {alternative}" if alternative else install,
        )


class UnskewWarning(Message, UserWarning):
    """Root of all warnings given by unskew."""


class PropensityWarning(UnskewWarning):
    """The weights are so uneven that few cells decide, or they do not fit the universe."""


class ConvergenceWarning(UnskewWarning):
    """A fit stopped before it converged."""


def warn_caller(warning: UnskewWarning) -> None:
    """Warn at the line that called the library, however deep in the library the cause is."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("unskew."):
        frame, level = frame.f_back, level + 1
    warnings.warn(warning, stacklevel=level)


__all__ = [
    name
    for name, member in globals().items()
    if isinstance(member, type) and issubclass(member, Message) and member is not Message
]
