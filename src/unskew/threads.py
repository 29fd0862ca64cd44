"""How many threads are used, and how work is shared so that results do not depend on it."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import cache
from numbers import Integral
from types import FrameType
from typing import Any, TypeVar
from uuid import uuid4

from unskew.errors import UsageError

T = TypeVar("T")
R = TypeVar("R")
SECONDS_BETWEEN_REQUESTS = 0.05
"""The pause between two requests to cancel the jobs of a Spark session."""


def count_threads(n_threads: int | None) -> int:
    """``n_threads``, or one for each processor that this process may use if it is None."""
    if n_threads is not None:
        if not isinstance(n_threads, Integral) or n_threads < 1:
            raise UsageError(
                "`n_threads` must be a whole number, at least 1, or None for one thread for each "
                f"processor; got {n_threads!r}.",
                parameter="n_threads",
                value=n_threads,
            )
        return int(n_threads)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class WorkStopped(BaseException):
    """Ends the work of a thread whose caller was interrupted."""


_current = threading.local()


def stop_if_interrupted() -> None:
    """End the work of this thread if its caller was interrupted; long loops call this."""
    stop: threading.Event | None = getattr(_current, "stop", None)
    if stop is not None and stop.is_set():
        raise WorkStopped


def interruptible_ranges(first: int, end: int, size: int) -> Iterator[tuple[int, int]]:
    """The numbers from ``first`` to ``end`` in ranges of ``size``.

    Between two ranges the work of a thread can be stopped, which compiled code cannot.
    """
    for start in range(first, end, size):
        stop_if_interrupted()
        yield start, min(start + size, end)


class Workers:
    """A pool of threads whose results come in order.

    With one thread, or one piece of work, everything runs in the calling thread. If that is
    interrupted (Ctrl-C), it goes on at once, and the other threads stop at the next call of
    :func:`stop_if_interrupted`.
    """

    def __init__(self, n_threads: int | None = None) -> None:
        self.n_threads = count_threads(n_threads)
        self._pool = ThreadPoolExecutor(self.n_threads) if self.n_threads > 1 else None
        self._stop = threading.Event()

    def __reduce__(self) -> tuple[type[Workers], tuple[int]]:
        """In another process, such as a task of Spark, work runs in the calling thread."""
        return Workers, (1,)

    def map(self, work: Callable[[T], R], pieces: Iterable[T]) -> list[R]:
        """``work(piece)`` of every piece, in the order of the pieces."""
        pieces = list(pieces)
        if self._pool is None or len(pieces) < 2:
            return [work(piece) for piece in pieces]
        return list(self._pool.map(self._make_stoppable(work), pieces))

    def stream(self, work: Callable[[T], R], pieces: Iterable[T]) -> Iterator[R]:
        """The same as an iterator: a result is available as soon as all earlier ones are."""
        if self._pool is None:
            return map(work, pieces)
        return self._pool.map(self._make_stoppable(work), pieces)

    def _make_stoppable(self, work: Callable[[T], R]) -> Callable[[T], R]:
        def run(piece: T) -> R:
            _current.stop = self._stop
            stop_if_interrupted()
            return work(piece)

        return run

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._pool is None:
            return
        if kind is not None and not issubclass(kind, Exception):  # interrupted: do not wait
            self._stop.set()
            self._pool.shutdown(wait=False, cancel_futures=True)
        else:
            self._pool.shutdown()


@contextmanager
def cancel_jobs_on_interrupt(session: Any) -> Iterator[None]:
    """Cancel the jobs that this thread starts on a Spark session if it is interrupted (Ctrl-C).

    Without this, Python waits until the running job has ended. A thread of its own sends the
    request, because the connection of this one may wait for the job. It repeats the request until
    this thread goes on: one query is several jobs, and a request between two of them cancels none.
    """
    tag, was_interrupted, has_ended = f"unskew-{uuid4().hex}", False, threading.Event()
    add_tag, cancel_tag, remove_tag = _find_tag_methods(session)

    def cancel() -> None:
        with suppress(Exception):  # the session may be gone
            cancel_tag(tag)

    def cancel_until_the_end() -> None:
        cancel()
        while not has_ended.wait(SECONDS_BETWEEN_REQUESTS):
            cancel()

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal was_interrupted
        try:
            before(number, frame)
        except BaseException:
            was_interrupted = True
            threading.Thread(target=cancel_until_the_end, daemon=True).start()
            raise

    before: Any = signal.getsignal(signal.SIGINT)
    handles = threading.current_thread() is threading.main_thread() and callable(before)
    add_tag(tag)
    try:
        if handles:
            signal.signal(signal.SIGINT, handle)
        yield
    except Exception as error:
        if was_interrupted:  # Spark says that the job was cancelled
            raise KeyboardInterrupt from error
        raise
    except BaseException:
        cancel()
        raise
    finally:
        has_ended.set()
        if handles:
            signal.signal(signal.SIGINT, before)
        with suppress(Exception):
            remove_tag(tag)


def _find_tag_methods(session: Any) -> tuple[Callable[[str], object], ...]:
    """How jobs of a Spark session are tagged, cancelled by their tag, and tagged no longer.

    The tags of a session in the driver are known only to the thread that added them, so another
    thread cannot cancel by them. Those of its context are known to all threads. Spark Connect has
    no context.
    """
    if type(session).__module__.startswith("pyspark.sql.connect"):
        return session.addTag, session.interruptTag, session.removeTag
    context = session.sparkContext
    return context.addJobTag, context.cancelJobsWithTag, context.removeJobTag


@contextmanager
def single_blas_thread() -> Iterator[None]:
    """Run BLAS in the calling thread.

    Its order of additions is then always the same, and no BLAS threads compete with ours.
    """
    with _blas_libraries().limit(limits=1, user_api="blas"):
        yield


@contextmanager
def single_openmp_thread() -> Iterator[None]:
    """Run OpenMP in the calling thread, because small pieces of work do not pay for threads."""
    from threadpoolctl import threadpool_limits

    with threadpool_limits(limits=1, user_api="openmp"):
        yield


def describe_blas() -> str:
    """The loaded BLAS libraries with their versions and numbers of threads, as text."""
    import numpy.linalg  # noqa: F401 - importing it loads a BLAS library

    libraries = [each for each in _blas_libraries().info() if each["user_api"] == "blas"]
    texts = [
        f"{library['internal_api']} {library['version']}, {library['num_threads']} threads"
        for library in libraries
    ]
    return "; ".join(texts) or "none found"


@cache
def _blas_libraries() -> Any:
    """The handle is kept, because finding the libraries takes milliseconds."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()
