"""How the source is organised, measured: files that a call crosses, names, sizes, duplicates.

    python benchmarks/structure.py                     # this checkout
    python benchmarks/structure.py --source OTHER/src  # another checkout, for comparison
    python benchmarks/structure.py --before OTHER/src  # code lines by package, there and here

Files are counted by tracing a call after a first one has imported and compiled everything.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SHORT_DOCSTRING = 5
SMALL_MODULE = 80
WIDTH = 100


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--source", type=Path, default=ROOT / "src", help="the src folder to measure"
    )
    parser.add_argument("--before", type=Path, help="only compare code lines with this src folder")
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
    parser.add_argument("--trace", choices=sorted(CALLS), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.trace:
        print(json.dumps(trace(options.source, CALLS[options.trace])))
        return
    if options.before:
        print(compare_code_lines(options.before, options.source))
        return
    facts = measure_calls(options.source) | measure_source(options.source / "unskew")
    if options.json:
        print(json.dumps(facts, indent=1))
        return
    for name, value in facts.items():
        if isinstance(value, dict):
            print(f"{name}:")
            print("\n".join(f"  {key:40} {number}" for key, number in value.items()))
        else:
            print(f"{name:60} {value}")


def evaluate_arrays() -> Callable[[], Any]:
    """``unskew.evaluate`` of one array of predictions by SNIPS."""
    import numpy as np

    import unskew

    world = unskew.simulate(n_users=40, n_items=30, random_state=0)
    predictions = np.full(len(world.log), 3.0)
    return lambda: unskew.evaluate(
        world.log,
        predictions,
        propensities=world.propensities,
        metrics=["mse"],
        estimators=["snips"],
    )


def fit_factorization() -> Callable[[], Any]:
    """``MatrixFactorization.fit`` with propensities."""
    import unskew

    world = unskew.simulate(n_users=40, n_items=30, random_state=0)
    return lambda: unskew.MatrixFactorization(2, tol=1e-3).fit(world.log, world.propensities)


def train_from_file() -> Callable[[], Any]:
    """``unskew train log.csv -o model.unskew``, run inside this process."""
    import unskew
    from unskew.cli import main as command

    folder = Path(tempfile.mkdtemp())
    log = unskew.simulate(n_users=40, n_items=30, random_state=0).log
    rows = zip(log.users[log.user], log.items[log.item], log.rating, strict=True)
    text = "\n".join(["user_id,item_id,rating", *(f"{u},{i},{r}" for u, i, r in rows)])
    (folder / "log.csv").write_text(text)
    arguments = ["train", str(folder / "log.csv"), "-o", str(folder / "m.unskew"), "-q"]

    def run() -> None:
        command(arguments, standalone_mode=False)

    return run


CALLS: dict[str, Callable[[], Callable[[], Any]]] = {
    "evaluate": evaluate_arrays,
    "fit": fit_factorization,
    "train": train_from_file,
}


def measure_calls(source: Path) -> dict[str, Any]:
    """Files of the package whose functions each call executes, and other counts by tracing."""
    facts: dict[str, Any] = {}
    for name in CALLS:
        command = [sys.executable, __file__, "--trace", name, "--source", str(source)]
        answer = subprocess.run(command, capture_output=True, text=True, check=True)
        traced = json.loads(answer.stdout.strip().splitlines()[-1])
        facts[f"files executed by {name}"] = len(traced["files"])
        if name == "evaluate":
            facts["calls from an estimator to its estimate"] = traced["estimator_calls"]
            facts["files from an estimator to its estimate"] = traced["estimator_files"]
            facts["functions among these, without accessors and array helpers"] = traced[
                "estimator_functions"
            ]
            facts["files of these functions"] = traced["files_of_functions"]
            facts["longest chain of these functions"] = traced["estimator_chain"]
            facts["validation passes over a Ratings in evaluate"] = traced["validations"]
    return facts


def trace(source: Path, prepare: Callable[[], Callable[[], Any]]) -> dict[str, Any]:
    """Run a call twice, and trace the second time."""
    sys.path.insert(0, str(source))
    call = prepare()
    call()
    package = str((source / "unskew").resolve())
    calls: list[tuple[str, str, int]] = []

    def record(frame: Any, event: str, _argument: object) -> None:
        filename = frame.f_code.co_filename
        if event == "call" and filename.startswith(package):
            calls.append((filename[len(package) + 1 :], frame.f_code.co_name, depth_of(frame)))

    threading.setprofile(record)
    sys.setprofile(record)
    call()
    sys.setprofile(None)
    threading.setprofile(None)
    functions = [each for each in calls if each[1] not in ("<module>", "<lambda>")]
    inside = list(calls_of_an_estimator(calls))
    followed = [each for each in inside if is_followed(source / "unskew", *each[:2])]
    return {
        "files": sorted({file for file, _, _ in functions}),
        "estimator_calls": len(inside),
        "estimator_files": len({file for file, _, _ in inside}),
        "estimator_functions": len({(file, name) for file, name, _ in followed}),
        "files_of_functions": len({file for file, _, _ in followed}),
        "estimator_chain": longest_chain([depth for _, _, depth in followed]),
        "validations": sum(
            file == "data/ratings.py" and name in ("__post_init__", "_validate")
            for file, name, _ in calls
        ),
    }


def calls_of_an_estimator(calls: list[tuple[str, str, int]]) -> Iterator[tuple[str, str, int]]:
    """The first call from ``evaluation`` into an estimator's sums, with all calls below it.

    It begins with the last outermost call into ``estimators`` that ends in an ``Estimate``.
    """
    ends = [
        k
        for k, (file, name, _) in enumerate(calls)
        if (file, name) == ("estimators/estimate.py", "__post_init__")
    ]
    if not ends:
        return
    end = ends[0]
    start = end
    depth = calls[end][2]
    for k in range(end, -1, -1):
        if calls[k][2] < depth:
            depth = calls[k][2]
            if not calls[k][0].startswith("estimators/"):
                break
            start = k
    yield from calls[start : end + 1]


def is_followed(package: Path, file: str, name: str) -> bool:
    """Whether a reader must follow a call: not to properties, comprehensions or array helpers."""
    if name.startswith("<") or file.startswith("kernels/"):
        return False
    tree = ast.parse((package / file).read_text())
    decorators = {
        ast.unparse(decorator)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.name == name
        for decorator in node.decorator_list
    }
    return not decorators & {"property", "cached_property"}


def longest_chain(depths: list[int]) -> int:
    """The most functions that call one another, given the depth of each call in order."""
    chain: list[int] = []
    longest = 0
    for depth in depths:
        while chain and chain[-1] >= depth:
            chain.pop()
        chain.append(depth)
        longest = max(longest, len(chain))
    return longest


def depth_of(frame: Any) -> int:
    depth = 0
    while frame is not None:
        frame, depth = frame.f_back, depth + 1
    return depth


def measure_source(package: Path) -> dict[str, Any]:
    """Names, sizes and docstrings, read from the source."""
    modules = {path: ast.parse(path.read_text()) for path in sorted(package.rglob("*.py"))}
    texts = {path: path.read_text().splitlines() for path in modules}
    classes = Counter(
        node.name
        for tree in modules.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    )
    importers = count_importers(package, modules)
    lines = [line for text in texts.values() for line in text]
    by_package = count_by_package(package)
    return {
        "modules": len(modules),
        "class names with several meanings": sum(number > 1 for number in classes.values()),
        "modules with exactly one importer": sum(number == 1 for number in importers.values()),
        f"modules of {SMALL_MODULE} lines or less": sum(
            len(text) <= SMALL_MODULE for text in texts.values()
        ),
        f"lines over {WIDTH} columns": sum(len(line) > WIDTH for line in lines),
        "lines": len(lines),
        f"docstrings under {SHORT_DOCSTRING} words": sum(
            len(text.split()) < SHORT_DOCSTRING
            for tree in modules.values()
            for text in docstrings(tree)
        ),
        "places that read the text of an error": sum(
            re.search(r"['\"] (not )?in str\((error|exception)", line) is not None for line in lines
        ),
        "code lines": sum(by_package.values()),
        "code lines by package": dict(sorted(by_package.items())),
    }


def count_by_package(package: Path) -> dict[str, int]:
    """Code lines of each package; modules beside the packages count as one each."""
    counts: dict[str, int] = defaultdict(int)
    for path in sorted(package.rglob("*.py")):
        text = path.read_text()
        part = path.relative_to(package).parts[0].removesuffix(".py")
        counts[part] += count_code_lines(ast.parse(text), text.splitlines())
    return counts


def compare_code_lines(before: Path, now: Path) -> str:
    """A table of code lines by package; the older source also as formatted at today's width."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(before / "unskew", Path(folder) / "unskew")
        command = ["ruff", "format", "-q", "--isolated", f"--line-length={WIDTH}", folder]
        subprocess.run([sys.executable, "-m", *command], check=True)
        formatted = count_by_package(Path(folder) / "unskew")
    columns = count_by_package(before / "unskew"), formatted, count_by_package(now / "unskew")
    names = sorted(set().union(*columns))
    rows = [(name, *(column.get(name, 0) for column in columns)) for name in names]
    rows.append(("all", *(sum(column.values()) for column in columns)))
    head = ["| package | before | before, at 100 columns | now |", "|---|---|---|---|"]
    return "\n".join(head + [f"| `{name}` | {a:,} | {b:,} | {c:,} |" for name, a, b, c in rows])


def count_importers(package: Path, modules: dict[Path, ast.Module]) -> dict[str, int]:
    """How many modules of the package import each module; ``__init__`` files are not counted."""
    names = {
        ".".join(("unskew", *path.relative_to(package).with_suffix("").parts)): path
        for path in modules
        if path.name != "__init__.py"
    }
    importers: dict[str, set[Path]] = {name: set() for name in names}
    for path, tree in modules.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module:
                targets = [node.module, *(f"{node.module}.{each.name}" for each in node.names)]
                for target in targets:
                    if target in importers:
                        importers[target].add(path)
    return {name: len(paths) for name, paths in importers.items()}


def docstrings(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            text = ast.get_docstring(node)
            if text:
                yield text


def count_code_lines(tree: ast.Module, text: list[str]) -> int:
    """Lines that are neither blank, nor comments, nor docstrings."""
    documented: set[int] = set()
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            documented.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return sum(
        bool(line.strip()) and not line.strip().startswith("#") and number not in documented
        for number, line in enumerate(text, start=1)
    )


if __name__ == "__main__":
    main()
