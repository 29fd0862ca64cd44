"""Quick versions of the fault injections of ``make faults``."""

from __future__ import annotations

import fcntl
import os
import resource
import signal
from pathlib import Path

import pytest

import unskew
from faults.interrupts import CASES, interrupt
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
    (tmp_path / ".unskew-abandoned").write_bytes(b"x")
    in_use = (tmp_path / ".unskew-in-use").open("wb")
    fcntl.flock(in_use, fcntl.LOCK_EX)

    write_file(tmp_path / "new", b"y")

    assert sorted(each.name for each in tmp_path.iterdir()) == [".unskew-in-use", "new"]
    in_use.close()


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
