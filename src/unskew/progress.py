"""Progress on standard error: a bar, a line, or nothing."""

from __future__ import annotations

import builtins
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Protocol, TypeVar

T = TypeVar("T")
SLOW_SECONDS = 5.0
"""Work that takes longer is announced where no bar can be shown."""
REFRESH_SECONDS = 0.5
"""How often the line of a notebook changes."""


class Track(Protocol):
    """A function that returns the items it is given, and may show how many are done."""

    def __call__(self, items: Iterable[T], /, *, label: str, total: int) -> Iterable[T]: ...


def no_progress(items: Iterable[T], /, *, label: str, total: int) -> Iterable[T]:  # noqa: ARG001
    """The items, without showing any progress."""
    return items


def progress_bar(items: Iterable[T], /, *, label: str, total: int) -> Iterator[T]:
    """The items, with a bar on standard error that disappears when it is full.

    A notebook shows a line that counts. If standard error is neither a terminal nor a notebook,
    slow work is announced in one line.
    """
    if _is_notebook():
        yield from _count_on_one_line(items, label, total)
        return
    if not shows_bar():
        yield from _announce_slow(items, label, total)
        return
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
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        yield from progress.track(items, total=total, description=label)


def shows_bar() -> bool:
    """Whether standard error is a terminal or a notebook, where one line can be replaced."""
    if _is_notebook():
        return True
    from rich.console import Console

    return Console(stderr=True).is_terminal


class StepLines:
    """A line on standard error for every long step, where no bar can be shown.

    ``label: seed 2 of 10, 33 learners; 5 min so far, about 20 min left``
    """

    def __init__(self, label: str, total: int, noun: str, *, is_enabled: bool) -> None:
        self.label, self.total, self.noun, self.is_enabled = label, total, noun, is_enabled
        self.started_at = perf_counter()

    def start(self, text: str) -> None:
        """Say what each step does before the first one."""
        self._print(f"{self.total} {self.noun}{'' if self.total == 1 else 's'}, {text} each")

    def show(self, number: int, text: str) -> None:
        """Say that a step is done, and estimate the time that is left."""
        seconds = perf_counter() - self.started_at
        left = seconds / number * (self.total - number)
        remaining = f", about {_format_seconds(left)} left" if number < self.total else ""
        self._print(
            f"{self.noun} {number} of {self.total}, {text}; {_format_seconds(seconds)} so far"
            f"{remaining}"
        )

    def _print(self, text: str) -> None:
        if self.is_enabled:
            print(f"{self.label}: {text}", file=sys.stderr, flush=True)


def _format_seconds(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def _announce_slow(items: Iterable[T], label: str, total: int) -> Iterator[T]:
    """The items; after the first, a line on standard error if all will take long."""
    start = perf_counter()
    for number, item in enumerate(items):
        yield item
        seconds = total * (perf_counter() - start)
        if number == 0 and seconds > SLOW_SECONDS:
            print(f"{label}: {total} steps, about {seconds:.0f} s", file=sys.stderr)


def _is_notebook() -> bool:
    return hasattr(builtins, "__IPYTHON__") and not sys.stderr.isatty()


def _count_on_one_line(items: Iterable[T], label: str, total: int) -> Iterator[T]:
    with _notebook_line() as show:
        for number, item in enumerate(items):
            show(f"{label}: {number} of {total}")
            yield item


@contextmanager
def _notebook_line() -> Iterator[Callable[[str], None]]:
    """A function that replaces the text of one line, at most twice per second, until it is empty.

    Plain text with carriage returns needs no widgets.
    """
    shown_at, width = -REFRESH_SECONDS, 0

    def show(text: str) -> None:
        nonlocal shown_at, width
        if perf_counter() - shown_at >= REFRESH_SECONDS:
            print(f"\r{text:<{width}}", end="", file=sys.stderr, flush=True)
            shown_at, width = perf_counter(), len(text)

    yield show
    print(f"\r{'':<{width}}\r", end="", file=sys.stderr, flush=True)


@contextmanager
def progress_line(enabled: bool) -> Iterator[Callable[[str], None]]:
    """A function that shows its latest text on one line of standard error, with a spinner.

    If it is not ``enabled`` the function does nothing.
    """
    if not enabled:
        yield lambda text: None  # noqa: ARG005
        return
    if _is_notebook():
        with _notebook_line() as show:
            yield show
        return
    from rich.console import Console

    with Console(stderr=True).status("starting") as status:
        yield status.update


def print_if_interactive(text: str) -> None:
    """Print a line to standard error if a person reads it: in a terminal or a notebook."""
    if sys.stderr.isatty() or hasattr(builtins, "__IPYTHON__"):
        print(text, file=sys.stderr)
