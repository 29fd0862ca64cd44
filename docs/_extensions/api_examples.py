"""Adds the examples of ``docs/api-examples`` to the pages of names whose docstring has none.

A file is one session: its first block is the setup, and each section is the example of a name.
The tests run the files; a page shows the setup and the example, so that both can be pasted.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "api-examples"
BLOCK = re.compile(r"^```python\n(.*?)\n*^```", flags=re.DOTALL | re.MULTILINE)


def read_examples() -> dict[str, str]:
    """The example of each name, such as ``unskew.metrics.Auc``, after the setup of its file."""
    examples = {}
    for path in sorted(FOLDER.glob("*.md")):
        intro, *sections = re.split(r"^## ", path.read_text(), flags=re.MULTILINE)
        (setup,) = BLOCK.findall(intro)
        for section in sections:
            name = section.split("\n", 1)[0].strip()
            (code,) = BLOCK.findall(section)
            examples[f"unskew.{path.stem}.{name}"] = f"{setup}\n{code}"
    return examples


def has_example(obj: Any) -> bool:
    """Whether the docstring of an object, or of a method of the class, has an example."""
    members = vars(obj).items() if isinstance(obj, type) else ()
    own = [each for name, each in members if not name.startswith("_")]
    return any(">>>" in (getattr(each, "__doc__", None) or "") for each in (obj, *own))


def add_example(
    _app: Any, what: str, name: str, obj: Any, _options: Any, lines: list[str]
) -> None:
    """Append the example to a docstring."""
    example = EXAMPLES.get(name)
    if example and what in ("class", "function", "data", "exception") and not has_example(obj):
        code = [f"   {line}".rstrip() for line in example.replace("  # doctest: +SKIP", "").split("\n")]
        lines += ["", ".. rubric:: Examples", "", ".. code-block:: pycon", "", *code, ""]


EXAMPLES = read_examples()


def setup(app: Any) -> dict[str, bool]:
    app.connect("autodoc-process-docstring", add_example, priority=900)
    return {"parallel_read_safe": True}
