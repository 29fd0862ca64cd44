"""The commands for real files: what each prints, writes and exits with."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import unskew
from command_line import as_json, fine, run
from unskew.errors import ConvergenceWarning
from unskew.io.files import read_table
from unskew.propensity import PROPENSITY_MODELS
from unskew.workflows.inputs import list_named_models

UNSKEW = [sys.executable, "-m", "unskew"]
FORMATS = ("csv", "tsv", "jsonl", "parquet", "arrow", "csv.gz")


@pytest.fixture(autouse=True)
def in_the_folder(files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Every test in a fresh copy of the files."""
    shutil.copytree(files, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("UNSKEW_DATA", raising=False)
    return tmp_path


def refused(code: int, *arguments: str) -> str:
    """What a command that fails says: one line."""
    result = run(*arguments)
    assert result.exit_code == code, result.output
    assert result.stderr.count("\n") == 1
    return result.stderr


def fitted(path: str = "p.unskew") -> str:
    fine("propensity", "fit", "log.csv", "--model", "popularity", "--universe", "log", "-o", path)
    return path


def trained(path: str = "m.unskew") -> str:
    fine("train", "log.csv", "--propensity", "propensity", "--factors", "2", "-o", path)
    return path


EVALUATE = ("--prediction", "old", "--prediction", "new", "--universe", "log", "--metric", "mae")


# unskew evaluate


@pytest.mark.parametrize("form", FORMATS)
def test_evaluate_says_what_the_library_says_for_every_format(form: str) -> None:
    import pandas as pd

    frame = pd.read_parquet("log.parquet")
    log = unskew.Ratings.from_frame(frame, universe="log")
    expected = unskew.evaluate(
        log, {"old": frame.old, "new": frame.new}, propensities=frame.propensity, metrics=["mae"]
    )

    found = as_json("evaluate", f"log.{form}", *EVALUATE)
    assert found == json.loads(expected.to_json())


def test_evaluate_reads_a_pipe() -> None:
    found = as_json("evaluate", "-", *EVALUATE, stdin=Path("log.csv").read_bytes())
    lines = as_json(
        "evaluate", "-", "--format", "jsonl", *EVALUATE, stdin=Path("log.jsonl").read_bytes()
    )

    assert found == lines == as_json("evaluate", "log.parquet", *EVALUATE)


@pytest.mark.parametrize("form", ["csv", "tsv", "jsonl", "parquet"])
def test_duckdb_says_the_same(form: str) -> None:
    by_duckdb = as_json("evaluate", f"log.{form}", *EVALUATE, "--reader", "duckdb")["rows"]
    in_memory = as_json("evaluate", f"log.{form}", *EVALUATE, "--reader", "memory")["rows"]

    for one, other in zip(by_duckdb, in_memory, strict=True):
        for name in ("estimate", "std_error"):  # limits in memory also correct for skewness
            assert one[name] == pytest.approx(other[name])


def test_duckdb_judges_columns_only() -> None:
    said = refused(
        2,
        "evaluate",
        "log.csv",
        "--predictions",
        "old.jsonl",
        "--reader",
        "duckdb",
        "--universe",
        "log",
    )

    assert "--reader memory" in said
    assert "gzipped" in refused(2, "evaluate", "log.csv.gz", *EVALUATE, "--reader", "duckdb")


def test_duckdb_takes_any_name_of_a_file_and_of_a_column() -> None:
    text = Path("log.csv").read_text().replace("old", 'o.l"d', 1).replace('o.l"d', '"o.l""d"', 1)
    Path("lo*g [1].csv").write_text(text)
    by_duckdb = as_json(
        "evaluate", "lo*g [1].csv", "--prediction", 'o.l"d', *EVALUATE[4:], "--reader", "duckdb"
    )["rows"]

    assert by_duckdb[2]["estimate"] == pytest.approx(
        as_json("evaluate", "log.csv", *EVALUATE)["rows"][2]["estimate"]
    )


def test_duckdb_names_what_it_cannot_use() -> None:
    Path("bad.csv").write_text("user,item,rating,prediction\n1,2,3,4\n1,3,x,4\n2,3,4,4\n2,5,1,3\n")
    Path("ragged.csv").write_text(
        "user,item,rating,prediction\n" + "".join(f"{n},2,3,4\n" for n in range(50)) + "1,2\n"
    )
    naive = ("--estimator", "naive", "--metric", "mae", "--reader", "duckdb")

    assert "rating" in refused(3, "evaluate", "bad.csv", *naive)
    assert as_json("evaluate", "bad.csv", *naive, "--on-bad", "drop")["n_dropped"] == 1
    assert "ragged.csv, line 52: found 2 fields" in refused(3, "evaluate", "ragged.csv", *naive)


def test_groups_have_propensities_that_are_fitted_to_all_of_them_and_compare() -> None:
    options = ("--by", "half", "--propensity", "popularity", "--compare", "old", "new")
    shown = fine("evaluate", "log.csv", *EVALUATE, *options).stdout

    assert "half  metric  estimator  difference" in shown
    assert "propensities were estimated by PopularityPropensity" in shown
    assert "these propensities never saw a rating" in shown
    assert "None" not in shown
    fine("evaluate", "log.csv", "--prediction", "old", "--universe", "30x80", "--by", "half")


def test_without_any_library_of_frames_text_is_still_judged_and_trained_on() -> None:
    code = (
        "import sys; sys.modules.update(dict.fromkeys(['pyarrow', 'pandas', 'polars', 'duckdb']));"
        "from unskew.cli import main; main()"
    )
    evaluate = ("evaluate", "log.csv", "--predictions", "old.jsonl", *EVALUATE[4:], "--json")
    judged = subprocess.run(
        [sys.executable, "-c", code, *evaluate], capture_output=True, text=True, check=False
    )
    refused_ = subprocess.run(
        [sys.executable, "-c", code, "validate", "log.parquet"],
        capture_output=True,
        text=True,
        check=False,
    )

    assert judged.returncode == 0, judged.stderr
    assert json.loads(judged.stdout)["rows"][0]["model"] == "old"
    assert refused_.returncode == 1
    assert refused_.stderr.endswith("Install it with: pip install 'unskew[io]'\n")


def test_evaluate_matches_files_of_predictions_by_their_ids() -> None:
    rows = as_json(
        "evaluate",
        "log.csv",
        "--predictions",
        "old.jsonl",
        "--predictions",
        "mine=new.jsonl",
        *EVALUATE[4:],
    )["rows"]
    columns = as_json("evaluate", "log.csv", *EVALUATE)["rows"]

    assert [row["model"] for row in rows[::3]] == ["old", "mine"]
    assert [row["estimate"] for row in rows] == pytest.approx([row["estimate"] for row in columns])


def test_evaluate_takes_saved_models_for_ranking_too() -> None:
    rows = as_json(
        "evaluate", "log.csv", "--predictions", trained(), "--universe", "log", "--metric", "dcg@5"
    )["rows"]

    assert {row["metric"] for row in rows} == {"dcg@5"}
    assert all(np.isfinite(row["estimate"]) for row in rows)


def test_a_file_of_all_predictions_ranks_the_items() -> None:
    table = read_table("log.csv")
    users, items = (sorted(set(table.columns[name].ids())) for name in ("user_id", "item_id"))
    cells = [(user, item) for user in users for item in items]
    scores = np.random.default_rng(0).random(len(cells)).reshape(len(users), len(items))
    positions = (-scores).argsort(axis=1).argsort(axis=1) + 1
    lines = {
        "all.csv": [f"{user},{item}" for user, item in cells],
        "part.csv": [f"{user},{item}" for user, item in cells[1:]],
    }
    for name, rows in lines.items():
        values = scores.ravel()[len(cells) - len(rows) :]
        text = "\n".join(f"{row},{value}" for row, value in zip(rows, values, strict=True))
        Path(name).write_text(f"user_id,item_id,prediction\n{text}\n")
    text = "\n".join(
        f"{row},0,{position}"
        for row, position in zip(lines["all.csv"], positions.ravel(), strict=True)
    )
    Path("places.csv").write_text(f"user_id,item_id,prediction,position\n{text}\n")
    options = ("--universe", "log", "--metric", "dcg@5", "--estimator", "snips")

    (by_score,) = as_json("evaluate", "log.csv", "--predictions", "all.csv", *options)["rows"]
    places = ("evaluate", "log.csv", "--predictions", "places.csv", *options)
    (by_position,) = as_json(*places, "--position", "position")["rows"]
    (by_zero,) = as_json(*places)["rows"]
    assert by_zero["estimate"] != pytest.approx(by_position["estimate"])  # only if it is named
    assert by_score["estimate"] == pytest.approx(by_position["estimate"], rel=1e-12)
    said = run("evaluate", "log.csv", "--predictions", "part.csv", *options)
    assert said.exit_code == 3
    assert "predictions" in said.stderr


def test_a_model_judged_on_its_own_log_or_on_strangers_says_so() -> None:
    own = fine("evaluate", "log.csv", "--predictions", trained(), "--universe", "log")
    Path("others.csv").write_text(
        "user_id,item_id,rating,propensity\n"
        "nobody,film 1,3,0.5\n1,film none,4,0.5\n2,film 2,1,0.2\n"
    )
    others = fine("evaluate", "others.csv", "--predictions", "m.unskew", "--universe", "log")

    n = len(Path("log.csv").read_text().splitlines()) - 1
    assert own.stderr.count(f"model 'm' was trained on {n:,} of the {n:,} tested cells") == 1
    assert "Hold ratings out: train models on the first part of `unskew split`" in own.stderr
    assert (
        "model 'm' was not trained on 1 of the log's users and 1 of the log's items"
        in others.stderr
    )
    Path("others.csv").write_text(
        "user_id,item_id,rating,propensity\nnobody,film 1,3,0.5\n2,film 2,1,0.2\n"
    )
    strangers = fine("evaluate", "others.csv", "--predictions", "m.unskew", "--universe", "log")
    assert "not trained on 1 of the log's users. For them" in strangers.stderr


def test_groups_of_the_training_log_are_warned_of_once() -> None:
    own = fine(
        *("evaluate", "log.csv", "--predictions", trained(), "--universe", "log", "--by", "half"),
        *("--json", "-o", "groups.html"),
    )

    n = len(Path("log.csv").read_text().splitlines()) - 1
    assert own.stderr.count("was trained on") == 1
    assert f"model 'm' was trained on {n:,} of the {n:,} tested cells" in own.stderr
    for group in json.loads(own.stdout)["groups"]:
        size = group["n_observed"]
        text = f"model 'm' was trained on {size:,} of the {size:,} tested cells"
        assert sum(text in each for each in group["warnings"]) == 1
    assert Path("groups.html").read_text().count("was trained on") == 2


def test_several_metrics_may_share_one_option() -> None:
    asked = ("evaluate", "log.csv", "--prediction", "old", "--universe", "log")

    assert as_json(*asked, "--metric", "mse, accuracy") == as_json(
        *asked, "--metric", "mse", "--metric", "accuracy"
    )


def test_diagnose_warns_where_a_model_does_not_know_all_that_the_features_list() -> None:
    Path("more.csv").write_text(Path("items.csv").read_text() + "film zork,drama\n")

    found = fine(
        "propensity",
        "diagnose",
        "log.csv",
        fitted(),
        "--universe",
        "log",
        "--item-features",
        "more.csv",
    )

    assert (
        "p.unskew was fitted without some of the users and items in the files of features"
        in found.stderr
    )


def test_a_table_for_people_and_a_comparison() -> None:
    shown = fine("evaluate", "log.csv", *EVALUATE, "--compare", "old", "new").stdout

    assert max(map(len, shown.splitlines())) <= 100
    assert "old minus new" in shown
    assert "model  metric  estimator  estimate  std_error  ci_low  ci_high" in shown
    assert "observed cells of 60 users x" in shown


def test_a_comparison_by_propensities_without_ratings_says_so() -> None:
    compare = ("--compare", "old", "new")
    said = "adjusted for items only: if people rate what they like, the order can also be the other"
    known, blind = (
        " ".join(fine("evaluate", "log.csv", *EVALUATE, *compare, *more).stdout.split())
        for more in ((), ("--propensity", "popularity"))
    )

    assert said in blind
    assert said not in known


def test_the_comparison_is_in_the_json_too() -> None:
    found = as_json("evaluate", "log.csv", *EVALUATE, "--compare", "old", "new")

    assert [row["estimator"] for row in found["comparisons"]] == ["naive", "ips", "snips"]
    assert found["comparisons"][0]["better"] == "new"


@pytest.mark.parametrize("form", ["csv", "tsv", "jsonl", "parquet", "arrow"])
def test_the_table_goes_to_a_file_by_its_extension(form: str) -> None:
    rows = as_json("evaluate", "log.csv", *EVALUATE)["rows"]
    result = fine("evaluate", "log.csv", *EVALUATE, "-o", f"out/table.{form}")
    table = read_table(f"out/table.{form}")

    assert result.stderr == f"wrote out/table.{form}\n"
    assert table.columns["model"].ids().tolist() == [row["model"] for row in rows]
    assert table.columns["ci_high"].numbers().tolist() == [row["ci_high"] for row in rows]
    assert fine("evaluate", "log.csv", *EVALUATE, "-q", "-o", f"table.{form}").stderr == ""


def test_the_table_as_json_file_and_as_csv_on_standard_output() -> None:
    fine("evaluate", "log.csv", *EVALUATE, "-o", "table.json")
    piped = fine("evaluate", "log.csv", *EVALUATE, "-o", "-").stdout

    assert json.loads(Path("table.json").read_text()) == as_json("evaluate", "log.csv", *EVALUATE)
    assert (
        piped.splitlines()[0] == "model,metric,estimator,estimate,std_error,ci_low,ci_high,degrees"
    )
    assert len(piped.splitlines()) == 7


@pytest.mark.parametrize("engine", ["memory", "duckdb"])
def test_groups_are_judged_apart(engine: str) -> None:
    groups = as_json("evaluate", "log.csv", *EVALUATE, "--by", "half", "--reader", engine)["groups"]
    import pandas as pd

    frame = pd.read_parquet("log.parquet").query("half == 'a'")
    log = unskew.Ratings.from_frame(frame, universe="log")
    alone = unskew.evaluate(log, {"old": frame.old}, propensities=frame.propensity, metrics=["mae"])

    assert [group["group"] for group in groups] == ["a", "b"]
    assert groups[0]["rows"][1]["estimate"] == pytest.approx(
        alone.risk("old", metric="mae", estimator="ips").estimate
    )


@pytest.mark.parametrize("model", ["nb", "popularity", "uniform"])
def test_propensities_may_be_fitted_on_the_way(model: str) -> None:
    mcar = ("--mcar", "random.csv") if model == "nb" else ()
    rows = as_json("evaluate", "log.csv", *EVALUATE, "--propensity", model, *mcar)["rows"]

    assert all(np.isfinite(row["estimate"]) for row in rows)


def test_cluster_level_clip_and_relevant_reach_the_library() -> None:
    wide = as_json(
        "evaluate", "log.csv", *EVALUATE, "--cluster", "user", "--level", "0.5", "--max-weight", "3"
    )

    assert (wide["level"], wide["intervals"]) == (0.5, "clustered by user")
    assert wide["weights"]["n_touched"] > 0


# gates


def test_a_gate_that_trips_exits_with_4_after_the_result() -> None:
    result = run(
        "evaluate",
        "log.csv",
        *EVALUATE,
        "--fail-if",
        "snips.mae.ci_high.old>0.1",
        "--fail-if",
        "ess<5",
    )

    assert result.exit_code == 4
    assert "snips" in result.stdout
    assert result.stderr.startswith("gate tripped: snips.mae.ci_high.old>0.1 is true for old, ")


def test_a_gate_that_holds_and_one_that_is_not_known() -> None:
    fine(
        "evaluate",
        "log.csv",
        *EVALUATE,
        "--fail-if",
        "snips.mae.ci_high>100",
        "--fail-if",
        "n_observed<2",
    )
    fine(
        "evaluate",
        "log.csv",
        *EVALUATE,
        "--compare",
        "old",
        "new",
        "--fail-if",
        "compare.snips.mae.p_value>1",
    )
    said = refused(2, "evaluate", "log.csv", *EVALUATE, "--fail-if", "snips.mae.upper>1")
    assert "valid names are: naive.mae.estimate" in said
    assert "a limit must be NAME<NUMBER" in refused(
        2, "evaluate", "log.csv", *EVALUATE, "--fail-if", "__import__('os')"
    )


# usage and bad data


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (
            ("evaluate", "log.csv", "--prediction", "zork"),
            3,
            "log.csv: there is no column 'zork' for --prediction",
        ),
        (
            ("evaluate", "log.csv"),
            3,
            "Pass --prediction COL to name one of them.",
        ),
        (("evaluate", "log.csv", "--prediction", "old"), 3, "Pass --universe UxI"),
        (
            ("evaluate", "log.csv", "--prediction", "old", "--metric", "mape"),
            2,
            "unknown metric 'mape'",
        ),
        (
            ("evaluate", "log.csv", "--prediction", "old", "--propensity", "zork"),
            3,
            "'zork' is neither a column",
        ),
        (
            (
                "evaluate",
                "log.csv",
                "--prediction",
                "old",
                "--propensity",
                "nb",
                "--universe",
                "log",
            ),
            2,
            "Pass a file of them as --mcar FILE",
        ),
        (
            ("evaluate", "log.csv", "--prediction", "old", "--level", "95", "--universe", "log"),
            2,
            "level must lie strictly between",
        ),
        (
            ("evaluate", "log.csv", *EVALUATE, "--estimator", "dr"),
            2,
            "The command line has no imputation: use --estimator snips, or call",
        ),
        (
            ("evaluate", "log.csv", *EVALUATE, "--mcar", "random.csv"),
            2,
            "--mcar FILE is a sample to fit a propensity model to, but no model is fitted here",
        ),
        (
            ("evaluate", "log.csv", *EVALUATE, "--by", "zork"),
            3,
            "there is no column 'zork' for --by",
        ),
        (
            ("evaluate", "log.csv", *EVALUATE, "--metric", "dcg@3"),
            3,
            "name a column of positions with --position COL",
        ),
        (
            ("evaluate", "log.csv", *EVALUATE, "--compare", "old", "zork"),
            2,
            "unknown model of this evaluation 'zork'",
        ),
        (
            ("propensity", "fit", "log.csv", "--model", "uniform", "-o", "p.unskew"),
            3,
            "--universe UxI",
        ),
        (
            (
                "propensity",
                "fit",
                "log.csv",
                "--model",
                "uniform",
                "--user-features",
                "users.csv",
                "-o",
                "p.unskew",
            ),
            2,
            "choose one of boosted, logistic",
        ),
        (
            ("train", "log.csv", "--cross-validate", "--grid", "zork=1,2", "-o", "m.unskew"),
            2,
            "has no setting 'zork'",
        ),
        (
            ("train", "log.csv", "--cross-validate", "--grid", "max-weight=2", "-o", "m.unskew"),
            2,
            "there are none. Pass --propensity, or remove it from --grid",
        ),
        (
            ("train", "log.csv", "--cross-validate", "--grid", "loss=zork", "-o", "m.unskew"),
            2,
            "unknown value 'zork' of --loss",
        ),
        (
            ("recommend", "log.parquet"),
            3,
            "log.parquet is not a model file. Pass a file written by",
        ),
        (
            ("data", "fetch", "zork"),
            2,
            "unknown data set 'zork'; valid names are: ",
        ),
        (("data", "check", "jester"), 3, "Jester was not found"),
        (
            ("propensity", "fit", "log.csv", "--model", "magic", "-o", "p"),
            2,
            "unknown propensity model 'magic'; valid names are: boosted",
        ),
        (
            ("propensity", "fit", "log.csv", "--model", "clipped", "-o", "p"),
            2,
            "unknown propensity model 'clipped'",
        ),
        (
            ("train", "log.csv", "--learner", "svd", "-o", "m.unskew"),
            2,
            "unknown recommender 'svd'",
        ),
        (
            ("train", "log.csv", "--learner", "mean", "--factors", "3", "-o", "m.unskew"),
            2,
            "GlobalMean does not have the setting --factors; it has no settings",
        ),
        (
            ("train", "log.csv", "--learner", "tdr", "-o", "m.unskew"),
            2,
            "the learner 'tdr' needs the propensities of all cells",
        ),
        (
            ("train", "log.csv", "--learner", "random-sample", "-o", "m.unskew"),
            2,
            "a random sample is used for propensities alone. Fit it in Python",
        ),
        (
            ("train", "log.csv", "--relevance-threshold", "4", "-o", "m.unskew"),
            2,
            "--relevance-threshold is used by metrics of a grid search, but no --grid was passed",
        ),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, tuple) else "",
)
def test_what_is_wrong_is_one_line_with_an_exit_code(
    arguments: tuple[str, ...], code: int, said: str
) -> None:
    line = refused(code, *arguments)

    assert said in line
    assert line.startswith("error: ")
    assert "Traceback" not in line
    assert not {"=...", "=("} & {part for part in ("=...", "=(") if part in line}


@pytest.mark.parametrize(
    "arguments",
    [
        ("evaluate", "nowhere.csv"),
        ("evaluate", "log.csv", "--predictions", "nowhere.csv"),
        ("evaluate", "log.csv", "--predictions", "nowhere.unskew"),
        ("evaluate", "log.csv", "--universe", "many"),
        ("train", "log.csv", "--grid", "l2=1,2", "-o", "m.unskew"),
        ("evaluate", "log.csv", *EVALUATE, "-o", "table.xls"),
        (
            "train",
            "log.csv",
            "--cross-validate",
            "--grid",
            "l2=1",
            "--checkpoint",
            "c",
            "-o",
            "m.unskew",
        ),
        ("train", "log.csv", "--cross-validate", "--grid", "l2", "-o", "m.unskew"),
        ("train", "log.csv", "--set", "ridge", "-o", "m.unskew"),
        ("evaluate", "log.csv", "--predictions", "old.jsonl", "--predictions", "./old.jsonl"),
        ("recommend", "log.csv", "--users", "users.csv", "--user", "3"),
    ],
    ids=" ".join,
)
def test_usage_errors_exit_with_2(arguments: tuple[str, ...]) -> None:
    result = run(*arguments)

    assert result.exit_code == 2
    assert "Error: " in result.stderr


def test_an_option_that_takes_one_value_is_refused_twice() -> None:
    result = run("evaluate", "log.csv", *EVALUATE, "-o", "a.json", "-o", "b.html")

    assert result.exit_code == 2
    assert "-o/--output takes one value, and got several. Pass one." in result.stderr
    assert not Path("a.json").exists()
    assert not Path("b.html").exists()


def test_bad_files_are_named_with_their_place() -> None:
    Path("bad.csv").write_text("user,item,rating,prediction\n1,2,3,4\n1,3,x,4\n")
    Path("latin.csv").write_bytes(b"user,item,rating\n1,caf\xe9,3\n")
    Path("cut.csv.gz").write_bytes(Path("log.csv.gz").read_bytes()[:300])
    Path("cut.parquet").write_bytes(Path("log.parquet").read_bytes()[:300])

    assert "bad.csv, line 3, column 'rating': found 'x'" in refused(
        3, "evaluate", "bad.csv", "--estimator", "naive"
    )
    assert "latin.csv, line 2: byte 0xe9" in refused(3, "train", "latin.csv", "-o", "m.unskew")
    assert "cut.csv.gz is not a complete gzip file" in refused(
        3, "evaluate", "cut.csv.gz", *EVALUATE
    )
    assert "cut.parquet is not a complete parquet file" in refused(3, "validate", "cut.parquet")
    assert "cut.parquet cannot be read" in refused(
        3, "evaluate", "cut.parquet", *EVALUATE, "--reader", "duckdb"
    )


def test_bad_rows_can_be_dropped_aloud() -> None:
    Path("bad.csv").write_text("user,item,rating,prediction\n1,2,3,4\n1,3,x,4\n2,2,4,4\n2,2,1,4\n")
    result = run(
        "evaluate",
        "bad.csv",
        "--estimator",
        "naive",
        "--metric",
        "mae",
        "--on-bad",
        "drop",
        "--duplicates",
        "last",
    )

    assert result.exit_code == 0
    assert result.stderr.splitlines() == [
        "warning: dropped 1 of 4 rows that cannot be used; "
        "the first: bad.csv, line 3, column 'rating': found 'x', expected a number",
        "warning: 1 row repeats a (user, item) of an earlier row in bad.csv; "
        "the last row of each was kept",
    ]
    assert "1 bad row dropped" in result.stdout


def test_warnings_of_the_library_are_one_line_each() -> None:
    Path("thin.csv").write_text(
        "user,item,rating,prediction,propensity\n"
        + "".join(f"{n},1,3,4,0.9\n" for n in range(140))
        + "999,1,1,5,0.0001\n"
    )
    result = run("evaluate", "thin.csv", "--estimator", "snips", "--metric", "mae")

    assert result.exit_code == 0
    assert result.stderr
    assert all(line.startswith("warning: ") for line in result.stderr.splitlines())


def test_the_traceback_is_shown_when_asked_for() -> None:
    for arguments in (("-v", "evaluate", "log.csv"), ("evaluate", "log.csv", "-v")):
        result = run(*arguments)
        assert result.exit_code == 3
        assert "Traceback" in result.stderr
        assert result.stderr.splitlines()[-1].startswith("error: log.csv: ")


# unskew validate


def test_validate_counts() -> None:
    found = as_json("validate", "log.csv")
    shown = fine("validate", "log.csv").stdout

    assert found["is_usable"]
    assert found["columns"] == {
        "user": "user_id",
        "item": "item_id",
        "rating": "rating",
        "propensity": "propensity",
    }
    assert (found["n_users"], found["n_repeats"], found["n_bad_rows"]) == (60, 0, 0)
    assert sum(count for _, count in found["histogram"]) == found["n_rows"]
    assert "can be used as a log." in shown
    assert max(map(len, shown.splitlines())) <= 80


@pytest.mark.skipif(sys.platform == "win32", reason="no file can have such a name")
def test_validate_writes_out_controls_in_the_name_of_a_file() -> None:
    name = "a\x1b[31m.csv"
    Path(name).write_bytes(Path("log.csv").read_bytes())

    shown = fine("validate", name).stdout

    assert shown.startswith("a\\x1b[31m.csv\n")
    assert "\x1b" not in shown


def test_validate_says_everything_that_is_wrong() -> None:
    Path("bad.csv").write_text(
        "user,item,rating,propensity\n1,2,3,0.5\n,2,3,0.5\n1,,x,2\n1,2,4,0.5\n"
    )
    result = run("validate", "bad.csv")

    assert result.exit_code == 3
    assert result.stderr.splitlines() == [
        "error: bad.csv: line 3, column 'user': found nothing, expected an id",
        "error: bad.csv: line 4, column 'item': found nothing, expected an id",
        "error: bad.csv: line 4, column 'rating': found 'x', expected a number",
        "error: bad.csv: line 4, column 'propensity': found '2', "
        "expected a propensity, above 0 and up to 1",
        "error: bad.csv: line 5: user 1, item 2 is already in line 2; "
        "1 row repeats a (user, item) of an earlier row",
    ]
    found = json.loads(run("validate", "bad.csv", "--json").stdout)
    assert not found["is_usable"]
    assert len(found["problems"]) == 5


@pytest.mark.parametrize(
    "text",
    [
        "user,item,rating\n",
        "user,item\n1,2\n",
        "user,userid,item,rating\n1,1,2,3\n",
        "user,item,rating\n1,2,x\n",
    ],
)
def test_validate_of_what_is_no_log(text: str) -> None:
    Path("bad.csv").write_text(text)

    assert run("validate", "bad.csv").exit_code == 3


def test_validate_many_ratings_in_bins() -> None:
    Path("many.csv").write_text(
        "user,item,rating\n" + "".join(f"{n},1,{n / 7}\n" for n in range(100))
    )

    assert len(as_json("validate", "many.csv")["histogram"]) == 10


# unskew propensity


@pytest.mark.parametrize("model", list_named_models())
def test_every_model_is_fitted_applied_and_diagnosed(model: str) -> None:
    traits = PROPENSITY_MODELS[model].traits
    features = ("--user-features", "users.csv", "--item-features", "items.csv")
    options = (
        *(("--mcar", "random.csv") if "needs_mcar" in traits else ()),
        *(features if "takes_features" in traits else ()),
        *("--universe", "log", "-o", "p.unskew"),
    )
    fine("propensity", "fit", "log.csv", "--model", model, *options)
    fine(
        "propensity", "apply", "p.unskew", "log.parquet", "--column", "p", "-o", "weighted.parquet"
    )
    fine("propensity", "apply", "p.unskew", "log.csv", "--column", "p", "-o", "weighted.csv")
    found = as_json(
        "propensity", "diagnose", "log.csv", "p.unskew", "propensity", "--universe", "log"
    )

    values = unskew.load("p.unskew").predict(
        unskew.Ratings.from_frame(__import__("pandas").read_parquet("log.parquet"))
    )
    for name in ("weighted.parquet", "weighted.csv"):
        assert read_table(name).columns["p"].numbers() == pytest.approx(values)
    assert read_table("weighted.csv").names == read_table("weighted.parquet").names
    by_name, by_column = found["models"]
    assert (by_name["model"], by_column["model"]) == ("p", "propensity")
    assert by_column["measures"]["log_loss"] is None
    assert (by_name["measures"]["log_loss"] is None) == ("sees_ratings" in traits)


def test_apply_keeps_the_other_columns_as_they_are() -> None:
    fine("propensity", "apply", fitted(), "log.csv", "--column", "p", "-o", "weighted.csv")
    before, after = (
        Path("log.csv").read_text().splitlines(),
        Path("weighted.csv").read_text().splitlines(),
    )

    assert after[0] == "user_id,item_id,rating,propensity,old,new,half,p"
    assert after[1].split(",")[:3] == before[1].split(",")[:3]
    assert (
        fine(
            "propensity", "apply", "p.unskew", "log.csv", "--column", "p", "-o", "-"
        ).stdout.splitlines()
        == after
    )
    assert "log.csv already has a column 'propensity'" in refused(
        3, "propensity", "apply", "p.unskew", "log.csv", "-o", "-"
    )


def test_diagnose_has_a_table_a_gate_and_warnings_on_standard_error() -> None:
    result = run(
        "propensity",
        "diagnose",
        "log.csv",
        fitted(),
        "propensity",
        "--universe",
        "log",
        "--item-features",
        "items.csv",
        "--fail-if",
        "ess.p<100000",
    )

    assert result.exit_code == 4
    assert "effective sample size" in result.stdout
    assert "imbalance (ASAM)" in result.stdout
    assert "warning" not in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 80
    assert result.stderr.splitlines()[-1].startswith("gate tripped: ess.p<100000 is true for ")
    said = refused(
        2,
        "propensity",
        "diagnose",
        "log.csv",
        "propensity",
        "--universe",
        "log",
        "--fail-if",
        "log_loss>1",
    )
    assert "log_loss of propensity was not measured" in said


def test_ids_of_a_model_and_of_a_log_meet_although_one_is_text() -> None:
    Path("more.csv").write_text(Path("log.csv").read_text() + "newcomer,film 1,3,0.5,1,1,a\n")
    fine(
        "propensity",
        "fit",
        "more.csv",
        "--model",
        "popularity",
        "--universe",
        "log",
        "-o",
        "p.unskew",
    )

    fine("propensity", "apply", "p.unskew", "log.csv", "--column", "p", "-o", "weighted.csv")
    fine("evaluate", "log.csv", *EVALUATE, "--propensity", "p.unskew")


# unskew train, unskew recommend


def test_train_is_what_the_library_fits() -> None:
    result = fine(
        "train",
        "log.csv",
        "--propensity",
        "propensity",
        "--factors",
        "2",
        "--l2",
        "0.5",
        "--loss",
        "absolute",
        "-o",
        "m.unskew",
    )
    frame = __import__("pandas").read_parquet("log.parquet")
    expected = unskew.MatrixFactorization(2, 0.5, loss="absolute").fit(
        unskew.Ratings.from_frame(frame), frame.propensity
    )

    assert "with propensities; MatrixFactorization(n_factors=2, l2=0.5," in " ".join(
        result.stdout.split()
    )
    assert result.stderr == "wrote m.unskew\n"
    assert unskew.load("m.unskew").objective_ == expected.objective_


def test_any_setting_of_a_learner_can_be_set() -> None:
    options = ("--learner", "wmf", "--max-weight", "9", "--set", "ridge=2.5", "--set", "alpha=3")
    said = refused(2, "train", "log.csv", *options, "-o", "m.unskew")
    fine("train", "log.csv", *options[:2], *options[4:], "--max-iter", "3", "-o", "m.unskew")
    model = unskew.load("m.unskew")

    assert "does not have the setting --max-weight; it has settings: n_factors, ridge" in said
    assert (model.ridge, model.alpha, model.max_iter) == (2.5, 3, 3)
    weights = ("--propensity", "propensity", "--max-weight", "9")
    fine("train", "log.csv", "--factors", "2", *weights, "-o", "m.unskew")
    assert unskew.load("m.unskew").weight_transform == unskew.estimators.Clip(9.0)


def test_a_grid_may_limit_the_weights() -> None:
    grid = ("--cross-validate", "--grid", "max-weight=2,9", "--folds", "2", "--factors", "2")
    found = as_json("train", "log.csv", "--propensity", "propensity", *grid, "-o", "m.unskew")

    assert len(found["rows"]) == 2
    assert "Clip(max_weight=" in str(found["best_params"]["weight_transform"])


def test_a_learner_from_clicks_gets_the_relevance_threshold() -> None:
    options = ("--learner", "logistic", "--max-iter", "3", "-o", "m.unskew")
    assert "Pass --relevance-threshold 4" in refused(3, "train", "log.csv", *options)
    fine("train", "log.csv", *options, "--relevance-threshold", "4")

    assert unskew.load("m.unskew").relevance_threshold == 4


def test_clicks_without_a_column_of_ratings() -> None:
    log = pl.read_csv("log.csv").select("user_id", "item_id")
    log.write_csv("clicks.csv")
    log.with_columns(rating=1).write_csv("ones.csv")
    learner = ("--learner", "wmf", "--factors", "2", "--universe", "log")

    assert "pass --rating 1" in refused(3, "train", "clicks.csv", "-o", "m.unskew")
    for name, options in (("clicks", ("--rating", "1")), ("ones", ())):
        fine("train", f"{name}.csv", *options, *learner, "-o", f"{name}.unskew")
    models = [unskew.load(f"{name}.unskew") for name in ("clicks", "ones")]

    users, items = log["user_id"].to_numpy(), log["item_id"].to_numpy()
    predictions = [model.predict(users, items) for model in models]
    assert np.array_equal(*predictions)
    assert "1" in fine("validate", "clicks.csv", "--rating", "1").stdout


def test_train_by_a_model_and_without_propensities() -> None:
    weighted = as_json(
        "train", "log.csv", "--propensity", fitted(), "--factors", "2", "-o", "m.unskew"
    )
    naive = as_json("train", "log.csv", "--factors", "2", "-o", "n.unskew")

    assert (weighted["is_weighted"], naive["is_weighted"]) == (True, False)


def test_cross_validation_shows_its_table_and_saves_the_best() -> None:
    grid = ("--cross-validate", "--grid", "l2=0.2,5", "--grid", "factors=2", "--folds", "2")
    shown = fine("train", "log.csv", "--propensity", "propensity", *grid, "-o", "m.unskew").stdout
    found = as_json("train", "log.csv", "--propensity", "propensity", *grid, "-o", "m.unskew")

    assert "Settings, the best first" in shown
    assert unskew.load("m.unskew").l2 == found["best_params"]["l2"]
    assert len(found["rows"]) == 2


def test_a_checkpoint_is_written_and_taken_up() -> None:
    arguments = ("train", "log.csv", "--factors", "2", "--checkpoint", "state.npz", "--l2")
    first = as_json(*arguments, "1", "-o", "a.unskew")
    again = as_json(*arguments, "1", "-o", "b.unskew")

    assert Path("state.npz").exists()
    assert first["objective"] == again["objective"]
    assert "belongs to another log" in refused(2, *arguments, "9", "-o", "c.unskew")


def test_recommend_prints_or_writes() -> None:
    trained()
    rows = as_json("recommend", "m.unskew", "--user", "3", "--user", "5", "-k", "4")["rows"]
    model = unskew.load("m.unskew")
    expected = model.recommend([3, 5], 4).to_columns()

    assert [row["item_id"] for row in rows] == expected["item_id"].tolist()
    assert "position" in fine("recommend", "m.unskew", "--user", "3").stdout
    fine("recommend", "m.unskew", "--users", "users.csv", "-k", "2", "-o", "best.parquet")
    assert len(read_table("best.parquet")) == 2 * len(read_table("users.csv"))
    seen = as_json("recommend", "m.unskew", "--user", "3", "-k", "500", "--include-seen")["rows"]
    assert len(seen) == len(model.items_)


def test_recommend_warns_of_strangers() -> None:
    result = fine("recommend", trained(), "--user", "nobody", "--user", "3", "-k", "1")

    assert (
        result.stderr == "warning: 1 of 2 users were not in the log that m.unskew was trained on. "
        "They get the items that are best without knowing the user.\n"
    )


def test_a_propensity_model_recommends_nothing_and_the_other_way_round() -> None:
    assert "has a PopularityPropensity, not a Recommender" in refused(2, "recommend", fitted())
    assert "has a MatrixFactorization, not a PropensityModel" in refused(
        2, "propensity", "apply", trained(), "log.csv", "-o", "x.csv"
    )
    assert "not a Recommender. Use a file that `unskew train` wrote." in refused(
        2, "evaluate", "log.csv", "--predictions", "p.unskew", "--universe", "log"
    )


# unskew data, unskew doctor


def test_data_sets_are_listed_checked_and_described(coat_folder: Path) -> None:
    rows = json.loads(fine("data", "list", "--data", str(coat_folder), "--json").stdout)
    assert {row["name"]: row["found"] for row in rows}["coat"] == str(coat_folder / "coat")
    assert re.search(r"movielens-100k +MovieLens 100K +- +yes", fine("data", "list").stdout)
    assert "$UNSKEW_DATA is not set" in fine("data", "check").stdout
    assert "is not what was published" in refused(3, "data", "check", "--data", str(coat_folder))
    assert "--data" in refused(3, "data", "fetch", "yahoo-r3")


def test_doctor_tells_what_is_there() -> None:
    found = {each["what"]: each for each in json.loads(fine("doctor", "--json").stdout)}
    shown = fine("doctor").stdout

    assert found["unskew"]["found"] == unskew.__version__
    assert found["extra io"]["found"].startswith("pyarrow ")
    assert found["data sets"]["remedy"] == "unskew data list"
    assert "kernel cache" in shown
    assert len(shown.splitlines()) == len(found)  # one line each, and nothing twice
    assert "myst" not in shown
    assert "extra oldest" not in shown


@pytest.mark.parametrize(
    "condition",
    [
        "extra == 'fast-io'",
        'extra == "fast-io"',
        "(python_version >= '3.10') and extra == 'fast-io'",
        "extra == 'fast-io' and sys_platform != 'win32'",
    ],
)
def test_doctor_finds_an_extra_whatever_else_its_packages_depend_on(
    monkeypatch: pytest.MonkeyPatch, condition: str
) -> None:
    declared = [
        "numpy>=1",
        f"numpy>=2; {condition}",
        f"unskew[io]; {condition}",
        "x; extra == 'dev'",
    ]
    monkeypatch.setattr("unskew.cli.doctor.requires", lambda _: declared)
    found = {each["what"]: each for each in json.loads(fine("doctor", "--json").stdout)}

    assert found["extra fast-io"]["found"] == f"numpy {np.__version__}"
    assert [name for name in found if name.startswith("extra ")] == ["extra fast-io"]


def test_doctor_names_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    from importlib.metadata import PackageNotFoundError, version

    def without(package: str) -> str:
        if package in ("duckdb", "rich"):
            raise PackageNotFoundError
        return version(package)

    monkeypatch.setattr("unskew.cli.doctor.version", without)
    monkeypatch.setattr("unskew.cli.doctor._can_write", lambda _: False)
    result = run("doctor")

    assert result.exit_code == 1
    assert "pip install 'unskew[duckdb]'" in result.stdout
    assert "! packages" in result.stdout
    assert "pip install rich" in result.stdout
    assert "export NUMBA_CACHE_DIR=FOLDER" in result.stdout


# from the shell


def test_a_session_in_the_shell() -> None:
    script = """
        set -e
        unskew validate log.csv > /dev/null
        cat log.csv | unskew propensity fit - --model popularity --universe log -q -o p.unskew
        unskew propensity apply p.unskew log.csv --column p -o - > weighted.csv
        cat weighted.csv | unskew evaluate - --prediction old --propensity p --universe log --json
        unskew recommend --help | head -1
    """.replace("unskew validate", " ".join(UNSKEW) + " validate")
    script = script.replace("        unskew", f"        {' '.join(UNSKEW)}").replace(
        "| unskew", f"| {' '.join(UNSKEW)}"
    )
    finished = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
    rows, usage = finished.stdout.splitlines()

    assert finished.returncode == 0, finished.stderr
    assert finished.stderr == ""
    assert json.loads(rows)["rows"][0]["model"] == "old"
    assert usage.startswith("Usage: unskew recommend")


# What settings are judged by


SEARCH = (
    "train",
    "log.csv",
    "--cross-validate",
    "--grid",
    "l2=1,5",
    "--folds",
    "2",
    "--max-iter",
    "3",
    "-o",
    "m.unskew",
)


SEARCH_WMF = (*(part.replace("l2=", "ridge=") for part in SEARCH), "--learner", "wmf")


def test_settings_are_judged_by_the_metric_that_is_asked_for() -> None:
    log = unskew.Ratings.from_frame(pl.read_csv("log.csv"))
    model = unskew.MatrixFactorization(max_iter=3)
    found = as_json(*SEARCH, "--metric", "dcg@5")

    assert found["metric"] == "dcg@5"
    with pytest.warns(ConvergenceWarning):
        expected = unskew.cross_validate(
            model, log, grid={"l2": [1, 5]}, n_folds=2, metric="dcg@5", estimator="naive"
        )
    assert found["best_score"] == pytest.approx(expected.best_score)
    assert as_json(*SEARCH)["metric"] == "mse"
    assert as_json(*SEARCH, "--loss", "absolute")["metric"] == "mae"
    relevant = ("--metric", "precision@5", "--relevance-threshold", "4")
    assert as_json(*SEARCH, *relevant)["metric"] == "precision@5"


def test_a_metric_that_is_not_known_or_has_nothing_to_judge_is_refused() -> None:
    assert "unknown metric 'mes'" in refused(2, *SEARCH, "--metric", "mes")
    said = refused(2, *SEARCH, "--metric", "precision@5")
    assert "Pass --relevance-threshold 4, for example" in said
    assert (
        "--metric needs --cross-validate"
        in run("train", "log.csv", "--metric", "mse", "-o", "m.unskew").stderr
    )


def test_scores_that_are_no_ratings_are_judged_by_a_ranking_metric_and_it_is_said() -> None:
    result = fine(*SEARCH_WMF)

    assert "score: dcg@10" in result.stdout
    assert (
        "wmf only ranks items, so settings are compared by dcg@10; --metric chooses another"
        in result.stderr
    )
    assert "only ranks" not in fine(*SEARCH_WMF, "-q").stderr
    assert (
        "only rank items, but mse would compare them with ratings"
        in fine(*SEARCH_WMF, "--metric", "mse").stderr
    )


def test_a_saved_model_whose_scores_are_no_ratings_says_so() -> None:
    fine("train", "log.csv", "--learner", "wmf", "--max-iter", "3", "-o", "m.unskew")

    assert (
        "the scores of 'm' only rank items"
        in fine("evaluate", "log.csv", "--predictions", "m.unskew", "--estimator", "naive").stderr
    )


@pytest.mark.parametrize("learner", ["hl-mar", "mixture", "eib"])
def test_a_learner_without_use_for_propensities_says_so(learner: str) -> None:
    result = fine(
        "train",
        "log.csv",
        "--learner",
        learner,
        "--propensity",
        "propensity",
        "--max-iter",
        "3",
        "-o",
        "m.unskew",
    )

    assert f"the learner '{learner}' does not use propensities" in result.stderr
    assert "without propensities" in result.stdout


def test_advice_on_the_universe_names_what_train_has() -> None:
    said = refused(
        3,
        "train",
        "log.csv",
        "--learner",
        "hl-mnar",
        "--propensity",
        "propensity",
        "--universe",
        "99x99",
        "-o",
        "m.unskew",
    )

    assert "Leave --universe out to use only the users and items of the log." in said
    assert "features" not in said


# Files that are read


@pytest.mark.parametrize(
    "arguments",
    [
        ("evaluate", "log.csv", "--prediction", "old", "--estimator", "naive", "-o", "./log.csv"),
        (
            "evaluate",
            "log.csv",
            "--predictions",
            "a=old.jsonl",
            "--estimator",
            "naive",
            "-o",
            "old.jsonl",
        ),
        ("train", "log.csv", "-o", "log.csv"),
        ("split", "log.csv", "-o", "train.csv", "log.csv"),
        (
            "propensity",
            "fit",
            "log.csv",
            "--model",
            "popularity",
            "--universe",
            "log",
            "-o",
            "log.csv",
        ),
        ("recommend", "log.csv", "-o", "log.csv"),
        ("report", "log.csv", "-o", "log.csv"),
    ],
    ids=" ".join,
)
def test_no_file_that_is_read_is_written_over(arguments: tuple[str, ...]) -> None:
    before = {path: Path(path).read_bytes() for path in ("log.csv", "old.jsonl")}
    result = run(*arguments)

    assert result.exit_code == 2
    assert "would overwrite the input file" in result.stderr
    assert {path: Path(path).read_bytes() for path in before} == before


def test_a_page_is_not_written_over_the_result_that_it_is_of() -> None:
    fine(
        "evaluate",
        "log.csv",
        "--prediction",
        "old",
        "--estimator",
        "naive",
        "-o",
        "made/of/two.json",
    )
    content = Path("made/of/two.json").read_bytes()
    Path("self.html").write_bytes(content)

    assert "would overwrite self.html" in run("report", "self.html").stderr
    assert Path("self.html").read_bytes() == content
    assert fine("report", "self.html", "-o", "other/page.html").exit_code == 0
