"""The one place that shows progress: a bar on standard error, or nothing."""

from __future__ import annotations

import builtins
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Protocol, TypeVar

T = TypeVar("T")


class Track(Protocol):
    """Passes items through and shows how far along they are."""

    def __call__(self, items: Iterable[T], /, *, label: str, total: int) -> Iterable[T]:
        """The same items."""
        ...


def no_progress(items: Iterable[T], /, *, label: str, total: int) -> Iterable[T]:  # noqa: ARG001
    """Show nothing."""
    return items


def progress_bar(items: Iterable[T], /, *, label: str, total: int) -> Iterator[T]:
    """A bar on standard error, gone when it is full; nothing where that is no terminal."""
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
    """A function that shows its latest text on one line of standard error, with a spinner; nothing where it is not wanted."""
    if not enabled:
        yield _ignore
        return
    from rich.console import Console

    with Console(stderr=True).status("starting") as status:
        yield status.update


def print_if_interactive(text: str) -> None:
    """A line on standard error where a person reads it: a terminal or a notebook."""
    if sys.stderr.isatty() or hasattr(builtins, "__IPYTHON__"):
        print(text, file=sys.stderr)


def _ignore(text: str) -> None:
    """What is not wanted."""
