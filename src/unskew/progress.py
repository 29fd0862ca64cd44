"""Progress on standard error: a bar, a line, or nothing."""

from __future__ import annotations

import builtins
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Protocol, TypeVar

T = TypeVar("T")


class Track(Protocol):
    """A function that returns the items it is given, and may show how many are done."""

    def __call__(self, items: Iterable[T], /, *, label: str, total: int) -> Iterable[T]: ...


def no_progress(items: Iterable[T], /, *, label: str, total: int) -> Iterable[T]:  # noqa: ARG001
    """The items, without showing any progress."""
    return items


def progress_bar(items: Iterable[T], /, *, label: str, total: int) -> Iterator[T]:
    """The items, with a bar on standard error that disappears when it is full.

    Nothing is shown if standard error is not a terminal.
    """
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    console = Console(stderr=True)
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as progress:
        yield from progress.track(items, total=total, description=label)


@contextmanager
def progress_line(enabled: bool) -> Iterator[Callable[[str], None]]:
    """A function that shows its latest text on one line of standard error, with a spinner.

    If it is not ``enabled`` the function does nothing.
    """
    if not enabled:
        yield lambda text: None  # noqa: ARG005
        return
    from rich.console import Console

    with Console(stderr=True).status("starting") as status:
        yield status.update


def print_if_interactive(text: str) -> None:
    """Print a line to standard error if a person reads it: in a terminal or a notebook."""
    if sys.stderr.isatty() or hasattr(builtins, "__IPYTHON__"):
        print(text, file=sys.stderr)
