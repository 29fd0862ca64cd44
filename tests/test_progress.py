"""Progress where there is no terminal."""

from __future__ import annotations

import pytest

from unskew import progress


def test_only_slow_work_is_announced_and_once(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert list(progress.progress_bar(range(3), label="fits", total=3)) == [0, 1, 2]
    assert capsys.readouterr().err == ""
    clock = iter([0.0, 4.0, 8.0, 12.0])
    monkeypatch.setattr(progress, "perf_counter", lambda: next(clock))

    assert list(progress.progress_bar(range(3), label="fits", total=3)) == [0, 1, 2]
    assert capsys.readouterr().err == "fits: 3 steps, about 12 s\n"
