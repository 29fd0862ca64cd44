"""Links the first use of each term of the glossary on a page to its line in the glossary."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from docutils import nodes

COMMON = frozenset(
    """
    user item code unit look side share report page figure model range position loss request base
    log rating weight prediction score estimate level sums metric click solution interval split
    fold logging policy target policy range bounds learner frame relevant setting overlap value
    product correction coverage cluster rule watch edge
    """.split()
)
"""Terms that are also everyday words of these pages; links would distract."""
UNLINKED = (nodes.reference, nodes.literal, nodes.title, nodes.Inline, nodes.term, nodes.image)


def list_terms(glossary: nodes.document) -> Iterator[tuple[str, nodes.entry]]:
    """Each term of the tables of the glossary, with its cell."""
    for row in glossary.findall(nodes.row):
        cell = row[0]
        if isinstance(row.parent, nodes.tbody):
            for term in cell.astext().split(","):
                yield re.sub(r"\s*\(.*?\)", "", term).strip(), cell


def name_anchor(term: str) -> str:
    return "term-" + re.sub(r"\W+", "-", term.lower()).strip("-")


def add_links(app: Any, doctree: nodes.document, docname: str) -> None:
    """Give the terms of the glossary anchors, and link to them from other pages."""
    if docname == "glossary":
        for term, cell in list_terms(doctree):
            cell["ids"].append(name_anchor(term))
        return
    if docname.startswith(("api/", "gallery/", "decisions")):
        return
    glossary = app.env.get_doctree("glossary")
    terms = {term.lower() for term, _ in list_terms(glossary)} - COMMON
    pattern = re.compile(
        r"\b(" + "|".join(sorted(map(re.escape, terms), key=len, reverse=True)) + r")\b(?! Bayes)",
        re.I,
    )
    address = app.builder.get_relative_uri(docname, "glossary")
    used: set[str] = set()
    for paragraph in list(doctree.findall(nodes.paragraph)):
        for text in [each for each in paragraph.children if isinstance(each, nodes.Text)]:
            paragraph.replace(text, list(_link_text(text, pattern, address, used)))


def _link_text(
    text: nodes.Text, pattern: re.Pattern[str], address: str, used: set[str]
) -> Iterator[nodes.Node]:
    """The text in pieces, of which the first uses of terms are links."""
    end = 0
    for match in pattern.finditer(text.astext()):
        term = match[0].lower()
        if term in used:
            continue
        used.add(term)
        yield nodes.Text(text.astext()[end : match.start()])
        link = nodes.reference(
            "", match[0], refuri=f"{address}#{name_anchor(term)}", internal=True, classes=["term"]
        )
        yield link
        end = match.end()
    yield nodes.Text(text.astext()[end:])


def setup(app: Any) -> dict[str, bool]:
    app.connect("doctree-resolved", add_links)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
