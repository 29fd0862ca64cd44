"""The code uses the words of docs/glossary.md: plain names, no private vocabulary."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

import unskew

ROOT = Path(unskew.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))
TREES = {path: ast.parse(path.read_text()) for path in FILES}

BANNED_WORDS = frozenset(
    """
    partner partners slope bend fall leave touching wanted asked specimen ward checkup complaint
    complaints silence everywhere elsewhere home homes chance chances portrait rated signed voices
    promised spells spelled remember
    """.split()
)
"""Words that no identifier may contain. The glossary has the standard word for each idea."""

BANNED_NAMES = frozenset("given found place places known at own there said some".split())
"""Names that do not say what they hold."""

BANNED_PHRASES = (
    "nobody said",
    "is no rating",
    "weighs no more than",
    "as they stand",
    "each is one",
    "it never does",
    "so many of",
    "computed again",
    "same bits",
    "no few",
    "is no prior",
    "fresh copy",
    "where it came from",
)
"""Phrases that once stood in docstrings and messages."""

FIELD_TERMS = {"diagnostics/fit.py": {"slope"}}
"""Exceptions: the calibration slope is a standard term of statistics."""

WORDS_IN_NAME = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")


def identifiers(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Every name that the module itself defines, with its line."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.AsyncFunctionDef)):
            yield node.name, node.lineno
        elif isinstance(node, ast.arg):
            yield node.arg, node.lineno
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, node.lineno
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr, node.lineno


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_identifiers_use_the_words_of_the_glossary(path: Path) -> None:
    wrong = [
        f"line {line}: {name}"
        for name, line in identifiers(TREES[path])
        if name in BANNED_NAMES
        or BANNED_WORDS
        & {word.lower() for word in WORDS_IN_NAME.findall(name)}
        - FIELD_TERMS.get(name_of(path), set())
    ]

    assert wrong == []


def test_no_two_classes_share_a_name() -> None:
    places = defaultdict(list)
    for path, tree in TREES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(name_of(path))

    assert {name: paths for name, paths in places.items() if len(paths) > 1} == {}


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_a_function_that_returns_an_exception_says_so(path: Path) -> None:
    """An error is raised where it happens, or comes from a function named ``..._error``."""
    wrong = [
        node.name
        for node in ast.walk(TREES[path])
        if isinstance(node, ast.FunctionDef)
        and node.returns is not None
        and re.fullmatch(r"\w*(Error|Warning)", ast.unparse(node.returns))
        and not re.search(r"error|warning", node.name)
    ]

    assert wrong == []


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_docstrings_say_something(path: Path) -> None:
    short = []
    for node in ast.walk(TREES[path]):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            text = ast.get_docstring(node)
            if text and len(text.split()) < 5:
                short.append(f"{getattr(node, 'name', 'module')}: {text}")

    assert short == []


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_lines_are_short_and_phrases_plain(path: Path) -> None:
    text = path.read_text()

    assert [number for number, line in enumerate(text.splitlines(), 1) if len(line) > 100] == []
    assert [phrase for phrase in BANNED_PHRASES if phrase in text.lower()] == []


def test_nothing_reads_the_text_of_an_error() -> None:
    wrong = [
        name_of(path)
        for path in FILES
        if re.search(r"['\"] (not )?in str\((error|exc)", path.read_text())
    ]

    assert wrong == []


def test_the_glossary_has_each_term_once() -> None:
    text = (ROOT.parents[1] / "docs" / "glossary.md").read_text()
    terms = [
        term.strip().replace("-", " ")
        for row in re.findall(r"^\| ([^|]+) \|", text, flags=re.MULTILINE)
        if row.strip() not in ("term", "---")
        for term in row.split(",")
    ]

    assert len(terms) > 80
    assert sorted({term for term in terms if terms.count(term) > 1}) == []
