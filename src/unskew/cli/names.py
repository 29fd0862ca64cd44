"""Parameters whose values are declared in registries, for help texts and shell completion.

A registry is read only when its names are shown: importing this module loads none of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import click
from click.shell_completion import CompletionItem

from unskew.registry import Declaration


@dataclass(frozen=True)
class DeclaredName(click.ParamType[Any]):
    """A name from a registry. The library checks it, and suggests a similar name."""

    title: str
    """Heading of the names in the help text."""
    list_names: Callable[[], Mapping[str, str]]
    """Returns a one-line summary for each name."""
    is_listed: bool = True
    """Whether the help text lists the names."""
    name = "name"

    def shell_complete(
        self,
        ctx: click.Context,
        param: click.Parameter,
        incomplete: str,
    ) -> list[CompletionItem]:
        return [
            CompletionItem(name, help=summary)
            for form, summary in self.list_names().items()
            for name in _expand_form(form)
            if name.startswith(incomplete)
        ]


def _expand_form(form: str) -> list[str]:
    """Examples of the names that a form stands for.

    >>> _expand_form("mse"), _expand_form("cg@k"), _expand_form("dcg[@k]")
    (['mse'], ['cg@10'], ['dcg', 'dcg@10'])
    """
    stem, is_optional, _ = form.partition("[")
    return [stem, f"{stem}@10"] if is_optional else [form.replace("@k", "@10")]


def _list_metrics() -> dict[str, str]:
    """Metrics of ratings first, those for random tests last. ``dcg[@k]``: ``dcg`` or ``dcg@k``."""
    from unskew.metrics import METRICS

    suffixes = {"never": "", "optional": "[@k]", "always": "@k"}
    ordered = sorted(
        METRICS.values(),
        key=lambda each: (getattr(each.target, "compares_logged_cells", False), each.target.ranks),
    )
    return {
        f"{each.name}{suffixes[each.traits.get('top', 'never')]}": each.summary for each in ordered
    }


def _list_estimators() -> dict[str, str]:
    """Estimators that need nothing but a log, predictions and propensities."""
    from unskew.estimators import ESTIMATORS

    return _summarize(each for each in ESTIMATORS.values() if not each.target.imputes)


def list_learners() -> dict[str, str]:
    """Recommenders that can be fitted to a log with the propensities of its cells."""
    from unskew.models import PRESETS, RECOMMENDERS

    return _summarize(
        each
        for registry in (RECOMMENDERS, PRESETS)
        for each in registry.values()
        if not each.traits.get("needs_all_propensities")
    )


def _list_propensity_models() -> dict[str, str]:
    from unskew.workflows.inputs import list_named_models

    return list_named_models()


def _list_quick_models() -> dict[str, str]:
    """Propensity models without features, which other commands can fit on the way."""
    from unskew.workflows.inputs import list_named_models

    return list_named_models(with_features=False)


def _list_datasets() -> dict[str, str]:
    from unskew.datasets import DATASETS

    return _summarize(DATASETS.values())


def _list_experiments() -> dict[str, str]:
    from unskew.paper import EXPERIMENTS

    return _summarize(EXPERIMENTS.values()) | {"all": "All of them."}


def _summarize(declarations: Iterable[Declaration[Any]]) -> dict[str, str]:
    return {each.name: each.summary for each in declarations}


METRIC = DeclaredName("Metrics", _list_metrics)
ESTIMATOR = DeclaredName("Estimators", _list_estimators)
LEARNER = DeclaredName("Learners", list_learners)
PROPENSITY_MODEL = DeclaredName("Propensity models", _list_propensity_models)
QUICK_MODEL = DeclaredName("Propensity models", _list_quick_models)
DATASET = DeclaredName("Data sets", _list_datasets)
EXPERIMENT = DeclaredName("Experiments", _list_experiments)
