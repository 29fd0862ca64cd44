"""How every kernel is compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

from numba import njit

Function = TypeVar("Function", bound=Callable[..., object])


def compiled(function: Function) -> Function:
    """Machine code at the first call, kept on disk, free of the interpreter's lock, 1 / 0 = inf."""
    return cast(Function, njit(cache=True, nogil=True, error_model="numpy")(function))
