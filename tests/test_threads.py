"""Threads that share the work of a fit."""

from __future__ import annotations

import pickle

from unskew.threads import Workers


def test_workers_of_another_process_run_in_the_calling_thread() -> None:
    with Workers(2) as workers:
        copy = pickle.loads(pickle.dumps(workers))

    assert copy.n_threads == 1
    assert copy.map(abs, [-2, 3]) == [2, 3]
