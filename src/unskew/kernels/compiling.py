"""How every kernel is compiled, and that somebody who waits for it is told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from numba import njit
from numba.core import event

from unskew.progress import print_if_interactive

Function = TypeVar("Function", bound=Callable[..., object])


def compiled(function: Function) -> Function:
    """Machine code at the first call, kept on disk, free of the interpreter's lock, 1 / 0 = inf."""
    return cast(Function, njit(cache=True, nogil=True, error_model="numpy")(function))


class Announcer(event.Listener):
    """Says so once, when the first kernel of ours is compiled and not read from disk."""

    def __init__(self) -> None:
        self.has_spoken = False

    def on_start(self, event: Any) -> None:
        """A compilation begins."""
        function = event.data["dispatcher"].py_func
        if not self.has_spoken and function.__module__.startswith("unskew."):
            self.has_spoken = True
            print_if_interactive(
                "unskew: compiling for this processor, this once; it may take a minute."
            )

    def on_end(self, event: Any) -> None:
        """Nothing to say."""


event.register("numba:compile", Announcer())  # type: ignore[no-untyped-call]
