"""Quick versions of the fault injections of ``make faults``."""

from __future__ import annotations

import fcntl
import os
import resource
import signal
from pathlib import Path

import pytest

import unskew
from faults.interrupts import CASES, interrupt, interrupt_spark
from faults.kills import KINDS, Fit, Work, kill_often, run_in_fork
from unskew.errors import FileWriteError
from unskew.io.writing import write_file
from unskew.models import GlobalMean

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_killed_process_leaves_complete_files_and_goes_on(
    kind: type[Work], tmp_path: Path
) -> None:
    tally = kill_often(kind, 3, tmp_path)

    assert tally.is_clean, tally


def test_an_abandoned_file_is_removed_by_the_next_write_and_one_in_use_is_not(
    tmp_path: Path,
) -> None:
    abandoned, busy = f".unskew-{'a' * 16}", f".unskew-{'b' * 16}"
    (tmp_path / abandoned).write_bytes(b"x")
    in_use = (tmp_path / busy).open("wb")
    fcntl.flock(in_use, fcntl.LOCK_EX)

    write_file(tmp_path / "new", b"y")

    assert sorted(each.name for each in tmp_path.iterdir()) == [busy, "new"]
    in_use.close()


def test_files_that_others_named_like_temporary_ones_stay(tmp_path: Path) -> None:
    """Neither a file of the user is removed, nor does a pipe of a stranger stop the work."""
    pipe, link, notes = (tmp_path / f".unskew-{end}" for end in ("c" * 16, "d" * 16, "notes"))
    os.mkfifo(pipe)
    notes.write_text("mine")
    link.symlink_to(notes)

    write_file(tmp_path / "new", b"y")

    assert {each.name for each in tmp_path.iterdir()} == {pipe.name, link.name, notes.name, "new"}
    assert notes.read_text() == "mine"


def test_a_file_that_cannot_grow_leaves_the_old_one(tmp_path: Path) -> None:
    model = GlobalMean().fit(unskew.simulate(30, 20, density=0.1).log)
    model.save(tmp_path / "model.unskew")
    before = (tmp_path / "model.unskew").read_bytes()

    def save_with_a_full_disk() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
        with pytest.raises(FileWriteError, match="cannot be written: File too large"):
            model.save(tmp_path / "model.unskew")

    assert not run_in_fork(save_with_a_full_disk, None)
    assert (tmp_path / "model.unskew").read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == ["model.unskew"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_device_is_a_typed_error() -> None:
    with pytest.raises(FileWriteError, match="No space left"):
        write_file("/dev/full", b"x" * 100_000)


def test_two_processes_with_one_checkpoint_give_the_same_bits(tmp_path: Path) -> None:
    work, path = Fit(), tmp_path / Fit.file
    children = []
    for _ in range(2):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                code = 0 if work.gives_same_bits(path) else 2
            finally:
                os._exit(code)
        children.append(child)

    assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0, 0]
    assert {each.name for each in tmp_path.iterdir()} <= {Fit.file}


@pytest.mark.parametrize("case", CASES)
def test_an_interrupt_ends_the_work_within_a_second(case: str, tmp_path: Path) -> None:
    path = tmp_path / "state"

    result = interrupt(case, path, n_ratings=50_000, after=1.0)

    assert result.was_interrupted
    assert result.processor_seconds < 1.0
    assert {each.name for each in tmp_path.iterdir()} <= {"state"}


@pytest.mark.slow
def test_an_interrupt_cancels_the_job_of_a_fit_on_spark() -> None:
    pytest.importorskip("pyspark")

    result = interrupt_spark(after=15.0)

    assert result["was_interrupted"]
    assert result["still_works"]
    assert result["processor_seconds"] < 1.0
    assert result["seconds_until_idle"] < 30


def test_an_interrupt_while_a_log_is_sorted_ends_all_threads(tmp_path: Path) -> None:
    """The signal comes before the first sweep, when two threads sort the log."""
    result = interrupt("fit", tmp_path / "state", n_ratings=1_000_000, after=0.02)

    assert result.was_interrupted
    assert result.processor_seconds < 1.0
