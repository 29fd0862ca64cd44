"""Public data sets, read from your own copy or from a checked download; none is shipped.

>>> sorted(DATASETS)
['cm100k', 'coat', 'jester', 'movielens-100k', 'open-bandit', 'yahoo-r3']
"""

from __future__ import annotations

from typing import Any

from unskew.registry import Registry, exported_names

DATASETS: Registry[Any] = Registry("data set", __name__)
"""The loaders by name. Traits: ``source`` (the files), ``record`` (the class that is returned)."""

_get_loader, _list_loaders = exported_names(DATASETS)


def _records() -> dict[str, type]:
    records = [declaration.traits["record"] for declaration in DATASETS.values()]
    return {record.__name__: record for record in records}


def __getattr__(name: str) -> Any:
    if not name.startswith("_") and name in (records := _records()):
        return records[name]
    return __dir__() if name == "__all__" else _get_loader(name)


def __dir__() -> list[str]:
    return sorted([*_list_loaders(), *_records()])
