"""Threads that share the work of a fit."""

from __future__ import annotations

import pickle
import signal
import threading
from typing import Any
from unittest.mock import Mock

import pytest

from unskew.threads import (
    Workers,
    WorkStopped,
    cancel_jobs_on_interrupt,
    interruptible_ranges,
)


def test_workers_of_another_process_run_in_the_calling_thread() -> None:
    with Workers(2) as workers:
        copy = pickle.loads(pickle.dumps(workers))

    assert copy.n_threads == 1
    assert copy.map(abs, [-2, 3]) == [2, 3]


CLASSIC = ["addJobTag", "cancelJobsWithTag", "removeJobTag"]
CONNECT = ["addTag", "interruptTag", "removeTag"]


class ConnectSession:
    """A session of Spark Connect, which has no context."""

    __module__ = "pyspark.sql.connect.session"

    def __init__(self, methods: Mock) -> None:
        self.addTag, self.removeTag = methods.addTag, methods.removeTag
        self.interruptTag = methods.interruptTag


def make_session(names: list[str]) -> tuple[Any, Mock]:
    """A session, and the object whose methods have these names."""
    methods = Mock()
    return (ConnectSession(methods) if names is CONNECT else Mock(sparkContext=methods)), methods


@pytest.mark.parametrize("names", [CLASSIC, CONNECT])
@pytest.mark.parametrize("error", [KeyboardInterrupt, WorkStopped, ValueError])
def test_an_interrupt_cancels_the_jobs_on_spark(
    error: type[BaseException], names: list[str]
) -> None:
    session, owner = make_session(names)

    with pytest.raises(error), cancel_jobs_on_interrupt(session):
        raise error

    is_interrupt = error is not ValueError
    assert [call[0] for call in owner.method_calls] == (names if is_interrupt else names[::2])
    assert len({call.args for call in owner.method_calls}) == 1


def test_an_interrupt_is_not_hidden_by_the_error_of_the_job_that_it_cancelled() -> None:
    session, asked = Mock(), threading.Event()
    session.sparkContext.cancelJobsWithTag.side_effect = lambda _: asked.set()
    before = signal.getsignal(signal.SIGINT)

    def wait_for_spark() -> None:
        try:
            signal.raise_signal(signal.SIGINT)
        finally:  # as pyspark does
            assert asked.wait(60)
            raise ValueError("[SPARK_JOB_CANCELLED]")

    with pytest.raises(KeyboardInterrupt), cancel_jobs_on_interrupt(session):
        wait_for_spark()

    assert signal.getsignal(signal.SIGINT) is before


def test_jobs_are_cancelled_until_the_caller_goes_on() -> None:
    """The first request may come between two jobs of a query."""
    session, third = Mock(), threading.Event()
    cancel = session.sparkContext.cancelJobsWithTag
    cancel.side_effect = lambda _: third.set() if cancel.call_count == 3 else None

    def wait_for_spark() -> None:
        try:
            signal.raise_signal(signal.SIGINT)
        finally:
            assert third.wait(60)

    with pytest.raises(KeyboardInterrupt), cancel_jobs_on_interrupt(session):
        wait_for_spark()


def test_a_session_that_is_gone_does_not_hide_the_interrupt() -> None:
    session = Mock()
    session.sparkContext.cancelJobsWithTag.side_effect = OSError

    with pytest.raises(KeyboardInterrupt), cancel_jobs_on_interrupt(session):
        raise KeyboardInterrupt


def test_threads_of_an_interrupted_caller_stop_between_two_ranges() -> None:
    has_begun, may_go_on, begun = threading.Event(), threading.Event(), []

    def work(piece: int) -> None:
        for start, _ in interruptible_ranges(0, 10, 1):
            begun.append((piece, start))
            has_begun.set()
            assert may_go_on.wait(60)

    def interrupt_workers() -> None:
        with Workers(2) as workers:
            workers.stream(work, [0, 1])
            assert has_begun.wait(60)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupt_workers()
    may_go_on.set()
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and "ThreadPool" in thread.name:
            thread.join(60)

    assert {start for _, start in begun} == {0}


def test_ranges_cover_everything_once() -> None:
    assert list(interruptible_ranges(3, 10, 4)) == [(3, 7), (7, 10)]
    assert list(interruptible_ranges(0, 0, 4)) == []
