"""The guides on real data do what they print: on the data where they are, else on a stand-in."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from guide_pages import GUIDES, NUMBER, folder_with_data, is_same_text, run_page

DATA = Path(os.environ.get("UNSKEW_DATA", "no-such-folder"))
NEEDED = {"real-log": "ml-100k", "random-test": "coat", "production": "ml-100k"}
"""The data of each guide, by the name of their folder."""


@pytest.mark.parametrize("guide", NEEDED)
def test_a_guide_does_what_it_prints(
    guide: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (GUIDES / f"{guide}.md").read_text()
    if guide == "real-log":
        pytest.importorskip("surprise", reason="the dev extra has scikit-surprise")
    if guide == "production":
        mlflow = pytest.importorskip("mlflow", reason="the extra tracking has mlflow-skinny")
        for name in ("MLFLOW_ALLOW_FILE_STORE", "MLFLOW_TRACKING_URI"):
            monkeypatch.setenv(name, "")  # the page sets them; afterwards they are as before
        request.addfinalizer(lambda: mlflow.set_tracking_uri(""))
    has_data = (DATA / NEEDED[guide]).is_dir()
    fixture = "movielens_folder" if NEEDED[guide] == "ml-100k" else "coat_folder"
    data = DATA if has_data else request.getfixturevalue(fixture)
    with folder_with_data(data.resolve(), tmp_path):
        steps = list(run_page(page))

    assert len(steps) >= 6
    assert any(step.printed for step in steps)
    if not has_data:
        pytest.skip(f"$UNSKEW_DATA has no {NEEDED[guide]}: ran on a small stand-in of it")
    for step in steps:
        if step.expected is not None:
            assert is_same_text(step.printed, step.expected), f"{step.source}\n{step.printed}"


@pytest.mark.parametrize(
    ("printed", "is_same"),
    [
        ("a 0.5001  [1, 1,000]", True),
        ("a 0.52 [1, 1,000]", False),
        ("b 0.50 [1, 1,000]", False),
        ("a 0.50 [1, 1,000] 3", False),
    ],
)
def test_texts_are_compared_by_words_and_rounded_numbers(printed: str, is_same: bool) -> None:
    assert is_same_text(printed, "a 0.50 [1, 1,000]") is is_same
    assert NUMBER.findall("+1.5e-04, 3 of 20x4 v2") == ["+1.5e-04", "3"]
