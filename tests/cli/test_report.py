"""Pages from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from command_line import fine, run

EVALUATE = (
    "evaluate",
    "log.csv",
    "--prediction",
    "old",
    "--prediction",
    "new",
    "--universe",
    "log",
    "--metric",
    "mae",
)


@pytest.fixture(autouse=True)
def here(files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("log.csv", "items.csv"):
        (tmp_path / name).write_bytes((files / name).read_bytes())
    monkeypatch.chdir(tmp_path)


def is_page(path: str) -> bool:
    return Path(path).read_text().startswith("<!doctype html>")


def test_report_makes_a_page_of_what_json_prints() -> None:
    Path("result.json").write_text(fine(*EVALUATE, "--json").stdout)

    assert fine("report", "result.json", "-o", "report.html").stderr == "wrote report.html\n"
    assert "new beats old by" in Path("report.html").read_text()
    assert "unskew report result.json -o report.html" in Path("report.html").read_text()


def test_report_takes_the_name_of_the_result_and_reads_pipes() -> None:
    fine(*EVALUATE, "-o", "result.json")
    fine("report", "result.json", "-q")
    piped = fine("report", "-", "-o", "-", stdin=Path("result.json").read_bytes())

    assert is_page("result.html")
    assert piped.stdout.startswith("<!doctype html>")
    assert run("report", "-", stdin=b"{}").exit_code == 2


def test_a_file_that_is_no_result_exits_with_3() -> None:
    for text in ("", "[]", '{"kind": "evaluation"}', "\xff", '{"kind": "poem"}'):
        Path("result.json").write_text(text)
        result = run("report", "result.json")
        assert result.exit_code == 3, result.stderr
        assert result.stderr.startswith("error: result.json")
    assert not Path("result.html").exists()


def test_evaluate_writes_a_page_that_knows_its_command() -> None:
    result = fine(*EVALUATE, "-o", "page.html")

    assert result.stderr == "wrote page.html\n"
    assert f"unskew {' '.join(EVALUATE)} -o page.html" in Path("page.html").read_text()


def test_groups_have_a_page() -> None:
    fine(*EVALUATE, "--by", "half", "-o", "page.html")

    assert "Evaluation by group" in Path("page.html").read_text()


def test_diagnose_writes_a_page() -> None:
    fine(
        "propensity",
        "diagnose",
        "log.csv",
        "propensity",
        "--universe",
        "log",
        "--item-features",
        "items.csv",
        "-o",
        "page.html",
    )

    assert "Diagnosis of propensities" in Path("page.html").read_text()


def test_a_search_has_a_page_and_one_fit_has_none() -> None:
    fit = (
        "train",
        "log.csv",
        "--propensity",
        "propensity",
        "--max-iter",
        "5",
        "-o",
        "m.unskew",
        "-o",
        "page.html",
    )

    fine(*fit, "--cross-validate", "--grid", "l2=1,5", "--grid", "factors=1,2", "--folds", "2")
    assert "Cross-validation" in Path("page.html").read_text()
    assert "-o page.html needs --cross-validate" in run(*fit).stderr


def test_reproduce_writes_a_page_of_one_experiment() -> None:
    fine("reproduce", "toy", "--trials", "2", "-q", "-o", "toy.html")

    assert "Figure 1 of the paper, reproduced" in Path("toy.html").read_text()
    fine("reproduce", "toy", "--trials", "2", "-q", "-o", "toy.html")
    assert "a page shows one table or figure" in run("reproduce", "all", "-o", "all.html").stderr
    assert "is a file. Choose a folder" in run("reproduce", "toy", "-o", "log.csv").stderr


def test_the_demo_writes_files_on_which_the_commands_of_the_readme_run() -> None:
    size = ("--universe", "943x1682")
    fine("demo", "--files", "sample")
    compared = fine(
        "evaluate", "sample/log.csv", "--prediction", "optimist", "--prediction", "realist", *size
    )
    fine(
        "propensity",
        "fit",
        "sample/log.csv",
        "--model",
        "nb",
        "--mcar",
        "sample/random.csv",
        *size,
        "-o",
        "p.unskew",
    )

    assert "79,652 observed cells of 943 users x 1,682 items" in compared.stdout
    with Path("sample/random.csv").open() as file:
        assert len(file.readlines()) == 1001


@pytest.mark.parametrize("option", ["-o", "--html"])
def test_the_demo_writes_a_page(option: str) -> None:
    result = fine("demo", option, "report.html")

    assert result.stderr == "wrote report.html\n"
    text = Path("report.html").read_text()
    assert "realist beats optimist by 0.90 MAE [0.88, 0.92].</em>" in text
    assert " (The plain average of the log says the opposite: optimist, by 0.13.)</h1>" in text
    assert f"unskew demo {option} report.html" in text
    assert len(text) < 1_500_000


def test_a_table_of_recommendations_is_no_page() -> None:
    fine("train", "log.csv", "--max-iter", "2", "-o", "m.unskew")

    assert "must end in one of .json, .csv" in run("recommend", "m.unskew", "-o", "x.html").stderr


def test_the_json_of_reproduce_can_be_reported() -> None:
    text = fine("reproduce", "toy", "--trials", "2", "-q", "--json").stdout
    assert json.loads(text)["kind"] == "reproduction"
    Path("toy.json").write_text(text)
    fine("report", "toy.json")

    assert is_page("toy.html")
