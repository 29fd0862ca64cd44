"""Threads: how many, and how work is shared so that their number is never seen in a result."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from numbers import Integral
from typing import Any, TypeVar

from unskew.errors import UsageError

T = TypeVar("T")
R = TypeVar("R")


def count_threads(n_threads: int | None) -> int:
    """The number asked for, or one for each processor this process may use."""
    if n_threads is not None:
        if not isinstance(n_threads, Integral) or n_threads < 1:
            raise UsageError(
                f"n_threads must be a whole number, at least 1, or None for one a processor; got {n_threads!r}."
            )
        return int(n_threads)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Workers:
    """A pool that maps in order; with one thread or one piece of work it stays in the calling thread."""

    def __init__(self, n_threads: int | None = None) -> None:
        self.n_threads = count_threads(n_threads)
        self._pool = ThreadPoolExecutor(self.n_threads) if self.n_threads > 1 else None

    def map(self, work: Callable[[T], R], pieces: Iterable[T]) -> list[R]:
        """``work`` of every piece, in the order of the pieces."""
        pieces = list(pieces)
        if self._pool is None or len(pieces) < 2:
            return [work(piece) for piece in pieces]
        return list(self._pool.map(work, pieces))

    def stream(self, work: Callable[[T], R], pieces: Iterable[T]) -> Iterator[R]:
        """The same as they are done, still in order."""
        return map(work, pieces) if self._pool is None else self._pool.map(work, pieces)

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *error: object) -> None:
        if self._pool is not None:
            self._pool.shutdown()


@contextmanager
def single_blas_thread() -> Iterator[None]:
    """BLAS keeps to the calling thread: the order in which it adds then depends on nothing, and no threads spin beside ours."""
    with _blas_libraries().limit(limits=1, user_api="blas"):
        yield


@contextmanager
def single_openmp_thread() -> Iterator[None]:
    """OpenMP keeps to the calling thread: small pieces of work are not shared out among threads that wait for one another."""
    from threadpoolctl import threadpool_limits

    with threadpool_limits(limits=1, user_api="openmp"):
        yield


def blas_in_words() -> str:
    """The BLAS libraries that are loaded, with version and threads."""
    import numpy.linalg  # noqa: F401 - which loads one

    found = [each for each in _blas_libraries().info() if each["user_api"] == "blas"]
    return (
        "; ".join(
            f"{each['internal_api']} {each['version']}, {each['num_threads']} threads"
            for each in found
        )
        or "none found"
    )


@cache
def _blas_libraries() -> Any:
    """Finding the libraries takes milliseconds, so the handle is kept."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()
