"""``unskew demo``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from unskew.cli.options import html_option
from unskew.cli.printing import console, print_prose, print_table, write_page

if TYPE_CHECKING:
    from unskew.paper.demo import Demo


CAPTION = "± is half of a 95 % interval."


@click.command(short_help="The main job on a simulated log whose truth is known.")
@click.option(
    "--seed",
    default=0,
    show_default=True,
    type=click.IntRange(min=0),
    help="Seed of the simulated log.",
)
@html_option("Also write it as a page to look at.")
def demo(seed: int, html: str | None) -> None:
    """The main job, end to end, on a simulated log whose truth is known.

    \b
    Example:
      unskew demo --seed 7
      unskew demo --html report.html
    """  # noqa: D301
    out = console()
    print_prose(
        out,
        "Simulating 943 users and 1,682 films, of which people rate 5 %, mostly what they like ...",
    )
    from unskew.paper import demo as story

    world = story.demo_world(seed=seed)
    print_prose(out, f"{world.log}")
    out.print()
    result = story.demo(world, seed=seed)
    print_table(out, _risks(result), title="Error of two models, lower is better", caption=CAPTION)
    print_table(
        out, _comparisons(result), title="Which is better? Optimist minus realist", caption=CAPTION
    )
    print_prose(out, result.summary())
    if html is not None:
        write_page(result.to_json(), html, quiet=False)


def _risks(result: Demo) -> dict[str, list[object]]:
    columns: dict[str, list[object]] = {"model": [], "metric": [], "truth": []}
    for (model, metric), true in result.true.items():
        columns["model"].append(model)
        columns["metric"].append(metric)
        columns["truth"].append(true)
        for estimator in result.evaluation.estimators:
            risk = result.evaluation.risk(model, metric=metric, estimator=estimator)
            columns.setdefault(estimator, []).append(
                f"{risk.estimate:.3f} ± {(risk.ci_high - risk.ci_low) / 2:.3f}"
            )
    return columns


def _comparisons(result: Demo) -> dict[str, list[object]]:
    compared = [result.compare(estimator) for estimator in result.evaluation.estimators]
    return {
        "estimator": [each.estimator for each in compared],
        "difference of mae": [
            f"{each.difference:+.3f} ± {(each.ci_high - each.ci_low) / 2:.3f}" for each in compared
        ],
        "better": [each.better or "cannot be told" for each in compared],
    }
