"""How kernels are compiled, and a message for users who wait for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from numba import njit
from numba.core import event

from unskew.progress import print_if_interactive

Function = TypeVar("Function", bound=Callable[..., object])


def compiled(function: Function) -> Function:
    """Compile at the first call, cache on disk, release the GIL; 1 / 0 is inf.

    Where no folder can be written, such as in a read-only installation without a home, there is no
    cache, and each process compiles.
    """
    try:
        return cast(Function, _compile_later(function, cache=True))
    except RuntimeError:  # numba has found no folder for its cache
        return cast(Function, _compile_later(function, cache=False))


def _compile_later(function: Function, *, cache: bool) -> object:
    return njit(cache=cache, nogil=True, error_model="numpy")(function)


class Announcer(event.Listener):
    """Tells the user once when a kernel of unskew is compiled rather than read from disk."""

    def __init__(self) -> None:
        self.has_announced = False

    def on_start(self, event: Any) -> None:
        function = event.data["dispatcher"].py_func
        if not self.has_announced and function.__module__.startswith("unskew."):
            self.has_announced = True
            print_if_interactive(
                "unskew: compiling for this processor, once; this can take a minute."
            )

    def on_end(self, event: Any) -> None:
        pass


event.register("numba:compile", Announcer())  # type: ignore[no-untyped-call]
