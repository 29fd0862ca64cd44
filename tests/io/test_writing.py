from __future__ import annotations

import csv
import datetime
import errno
import os
import stat
import subprocess
import sys
import threading
import warnings
from pathlib import Path

import numpy as np
import pytest

import unskew
from unskew.errors import BadFileError, FileWriteError, UnskewWarning, UsageError
from unskew.io import writing
from unskew.io.files import write_table
from unskew.io.writing import write_blocks, write_file
from unskew.models import GlobalMean


def list_names(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir())


def test_a_file_is_written_and_replaced(tmp_path: Path) -> None:
    path = tmp_path / "new" / "a.txt"
    write_file(path, b"one")
    write_file(str(path), b"two")

    assert path.read_bytes() == b"two"
    assert list_names(path.parent) == ["a.txt"]


def test_a_device_is_written_to_and_stays_a_device(tmp_path: Path) -> None:
    path = tmp_path / "null"
    try:
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 3))
    except PermissionError:
        pytest.skip("only root makes devices")
    write_file(path, b"one")

    assert stat.S_ISCHR(path.stat().st_mode)


def test_a_named_pipe_is_written_to(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    found: list[bytes] = []
    reader = threading.Thread(target=lambda: found.append(path.read_bytes()))
    reader.start()
    write_file(path, b"one")
    reader.join()

    assert found == [b"one"]
    assert path.is_fifo()


@pytest.mark.parametrize("name", ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"])
@pytest.mark.parametrize("to_file", [True, False])
def test_open_files_of_the_process_get_the_content_in_its_order(
    tmp_path: Path, name: str, to_file: bool
) -> None:
    program = (
        "import sys; from unskew.io.writing import write_file\n"
        f"print('first'); write_file({name!r}, b'second\\n'); print('third')"
    )
    command = [sys.executable, "-c", program]
    if to_file:
        with (tmp_path / "out").open("wb") as file:
            subprocess.run(command, check=True, stdout=file)
        said = (tmp_path / "out").read_bytes()
    else:
        said = subprocess.run(command, check=True, capture_output=True).stdout

    assert said == b"first\nsecond\nthird\n"


def test_a_link_is_followed_and_permissions_are_kept(tmp_path: Path) -> None:
    path, link = tmp_path / "a.txt", tmp_path / "link"
    path.write_bytes(b"one")
    path.chmod(0o600)
    link.symlink_to(path)
    write_file(link, b"two")

    assert link.is_symlink()
    assert path.read_bytes() == b"two"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_the_longest_name_can_be_written(tmp_path: Path) -> None:
    write_file(tmp_path / ("x" * 255), b"one")

    assert (tmp_path / ("x" * 255)).read_bytes() == b"one"


@pytest.mark.parametrize(
    ("name", "reason"),
    [(".", "Is a directory"), ("a\0b", "null byte"), ("x" * 300, "File name too long")],
)
def test_a_name_that_cannot_be_written_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, reason: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileWriteError, match=f"cannot be written: .*{reason}.* Choose another"):
        write_file(name, b"one")
    assert list_names(tmp_path) == []


def test_a_full_disk_needs_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(file: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(FileWriteError, match=r"No space left on device\. Free some space, or"):
        write_file(tmp_path / "file", b"one")


@pytest.mark.parametrize("name", ["", "s3://bucket/x"])
def test_what_is_no_path_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="path must be"):
        write_file(name, b"one")
    assert list_names(tmp_path) == []


@pytest.mark.parametrize("has_unnamed_files", [True, False])
def test_a_write_that_fails_keeps_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_unnamed_files: bool
) -> None:
    def fail(_: int) -> None:
        raise OSError(28, "No space left on device")

    if not has_unnamed_files:
        monkeypatch.delattr(os, "O_TMPFILE", raising=False)
    path = tmp_path / "a.txt"
    write_file(path, b"one")
    monkeypatch.setattr(writing.os, "fsync", fail)
    with pytest.raises(FileWriteError, match="No space left on device"):
        write_file(path, b"two")

    assert path.read_bytes() == b"one"
    assert list_names(tmp_path) == ["a.txt"]


def test_files_are_written_without_unnamed_files_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "O_TMPFILE", raising=False)
    write_file(tmp_path / "a.txt", b"one")
    write_file(tmp_path / "a.txt", b"two")

    assert (tmp_path / "a.txt").read_bytes() == b"two"
    assert list_names(tmp_path) == ["a.txt"]


@pytest.mark.skipif(not hasattr(os, "O_TMPFILE"), reason="this system has no unnamed files")
def test_a_process_that_is_killed_leaves_nothing_behind(tmp_path: Path) -> None:
    program = (
        "import os, sys; from unskew.io import writing\n"
        "writing.os.fsync = lambda _: os.kill(os.getpid(), 9)\n"
        f"writing.write_file({str(tmp_path / 'a.txt')!r}, b'two')"
    )
    (tmp_path / "a.txt").write_bytes(b"one")
    killed = subprocess.run([sys.executable, "-c", program], check=False)

    assert killed.returncode == -9
    assert (tmp_path / "a.txt").read_bytes() == b"one"
    assert list_names(tmp_path) == ["a.txt"]


FORMULAS = [
    *('=HYPERLINK("http://x")', "+cmd|' /C calc'!A0", "@SUM(1)", "-2+3"),
    *("\t=1", "\r=1", "a;b;=1+1", "a\t@b"),
]


@pytest.mark.parametrize("text", FORMULAS)
@pytest.mark.parametrize("form", ["csv", "tsv"])
def test_a_formula_is_named_and_read_again(text: str, form: str, tmp_path: Path) -> None:
    path = str(tmp_path / f"x.{form}")

    with pytest.warns(
        UnskewWarning, match="1 text of .* could be taken for a formula; the first is"
    ):
        write_table({"user_id": ["ann", text], "rating": [1.0, 2.0]}, path)

    delimiter = "," if form == "csv" else "\t"
    with Path(path).open(newline="") as file:
        assert list(csv.reader(file, delimiter=delimiter))[2][0] == text


@pytest.mark.parametrize("form", ["csv", "tsv", "jsonl", "parquet"])
def test_numbers_and_plain_text_are_no_formulas(form: str, tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        write_table(
            {"user_id": ["-1", "+2.5e3"], "item_id": ["a=b", "x;y=1"], "rating": [-1.0, 2.0]},
            str(tmp_path / f"x.{form}"),
        )


def test_recommendations_warn_too(tmp_path: Path) -> None:
    log = unskew.Ratings.from_arrays(["u", "v"], ["=1+1", "b"], [1, 2])
    model = GlobalMean().fit(log)

    with pytest.warns(UnskewWarning, match="could be taken for a formula; the first is '=1\\+1'"):
        model.write_recommendations(tmp_path / "lists.csv", k=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.write_recommendations(tmp_path / "lists.parquet", k=1)


def test_names_of_columns_are_texts_too(tmp_path: Path) -> None:
    with pytest.warns(UnskewWarning, match="in column '=A1'"):
        write_table({"=A1": np.array(["x"])}, str(tmp_path / "x.csv"))


IDS = {
    "dates and text": [datetime.date(2020, 1, 1), "a"],
    "days of NumPy": [np.datetime64("2020-01-01"), "a"],
    "numbers and flags": [True, 7],
    "tuples": [(1, "a"), (2, "b")],
    "large numbers": [10**30, 1],
}


@pytest.mark.parametrize("name", IDS)
@pytest.mark.parametrize("block_size", [1, 2])
def test_blocks_that_parquet_cannot_hold_are_a_typed_error(
    name: str, block_size: int, tmp_path: Path
) -> None:
    values = np.empty(2, object)
    values[:] = IDS[name]
    blocks = [{"user": values[row : row + block_size]} for row in range(0, 2, block_size)]

    with pytest.raises(BadFileError, match=r"cannot be written as Parquet: .* Write CSV"):
        write_blocks(blocks, tmp_path / "lists.parquet")

    assert list_names(tmp_path) == []
    assert write_blocks(blocks, tmp_path / "lists.csv") == 2
