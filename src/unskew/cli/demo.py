"""``unskew demo``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from unskew.cli.printing import console, print_table

if TYPE_CHECKING:
    from unskew.experiments.demo import Demo


@click.command()
@click.option("--seed", default=0, show_default=True, help="Seed of the simulated log.")
def demo(seed: int) -> None:
    """The main job, end to end, on a simulated log whose truth is known.

    \b
    Example:
      unskew demo --seed 7
    """  # noqa: D301
    out = console()
    out.print("Simulating 943 users and 1,682 films, of which people rate 5 %, mostly what they like ...")
    from unskew.experiments import demo as story

    world = story.demo_world(seed=seed)
    out.print(f"{world.log}\n")
    result = story.demo(world, seed=seed)
    print_table(out, _columns(result), title="Which model is better? Error, lower is better, with 95% intervals")
    for estimator in ("naive", "ips", "snips"):
        out.print(f"{estimator:>6}: {result.compare(estimator)}")
    out.print(f"\n{result.summary()}")


def _columns(result: Demo) -> dict[str, list[object]]:
    columns: dict[str, list[object]] = {"model": [], "metric": [], "truth": []}
    for (model, metric), true in result.true.items():
        columns["model"].append(model)
        columns["metric"].append(metric)
        columns["truth"].append(true)
        for estimator in result.evaluation.estimators:
            risk = result.evaluation.risk(model, metric=metric, estimator=estimator)
            columns.setdefault(estimator, []).append(f"{risk.estimate:.3f} [{risk.ci_low:.3f}, {risk.ci_high:.3f}]")
    return columns
