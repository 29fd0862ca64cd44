"""Print pip constraints that pin every dependency with a lower bound to that bound.

python tests/oldest.py > constraints.txt && pip install '.[dev]' -c constraints.txt
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
PINNED = ("report", "data", "io", "duckdb", "spark")
"""The extras whose lower bounds are promised to users; those of ``dev`` and ``docs`` are not."""


def lower_bounds() -> dict[str, str]:
    extras = PROJECT["optional-dependencies"]
    requirements = [*PROJECT["dependencies"], *(line for name in PINNED for line in extras[name])]
    found = (re.fullmatch(r"([\w-]+)>=([\d.]+)", line) for line in requirements)
    return {match[1]: match[2] for match in found if match}


if __name__ == "__main__":
    for name, version in sorted(lower_bounds().items()):
        print(f"{name}=={version}.*")
