"""``unskew policy``: what another ranking would earn, and how positions are examined."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING

import click

from unskew.cli import COMMANDS, options
from unskew.cli.printing import open_console, print_table, show_progress, write_columns
from unskew.cli.program import CommandGroup, collect_request, render_message
from unskew.policies import POLICY_ESTIMATORS
from unskew.tables import UNDECIDED
from unskew.workflows.gates import Gate
from unskew.workflows.requests import PolicyRequest, PositionBiasRequest

if TYPE_CHECKING:
    from rich.console import Console

    from unskew.evaluation.result import Comparison

POLICY_ESTIMATOR = options.DeclaredName(
    "Estimators", lambda: {each.name: each.summary for each in POLICY_ESTIMATORS.values()}
)


def cell_option(purpose: str = "") -> options.Decorator[options.Decorated]:
    """The roles that make a cell of an examination curve; ``purpose`` begins the help text."""
    text = "what has one relevance: user,item, or item if the ranking is the same for all users."
    return click.option(
        "--cell",
        default="user,item",
        metavar="ROLES",
        callback=options.split_commas,
        help=f"{purpose}{text}" if purpose else text.capitalize(),
    )


@click.group("policy", cls=CommandGroup)
def policy() -> None:
    """Evaluate rankings on a log of shown items and clicks.

    \b
    Example:
      unskew policy evaluate shown.csv --ranking new=col --examination 1,0.5
      unskew policy position-bias shown.parquet -o curve.html
    """  # noqa: D301


COMMANDS.add(
    "policy",
    policy,
    label="Policy",
    summary="Would another ranking do better? Evaluate policies on logged impressions.",
    traits={"order": 3.5},
)


@policy.command("evaluate", short_help="Estimate what other policies would earn.")
@options.impression_log_options
@options.impression_options
@click.option(
    "--target",
    multiple=True,
    metavar="[NAME=]COL",
    callback=options.parse_named_columns,
    help="A policy: a column of LOG with its probabilities of the shown items.",
)
@click.option(
    "--ranking",
    multiple=True,
    metavar="[NAME=]COL",
    callback=options.parse_named_columns,
    help="A policy: a column of LOG with the position that it gives each shown item among all "
    "candidates of the request, not among the shown ones; empty if it does not show the item.",
)
@click.option(
    "--model",
    multiple=True,
    metavar="[NAME=]FILE",
    callback=options.parse_named_files,
    help="A policy: a file that `unskew train` wrote; it ranks the candidates of each request.",
)
@options.choice_option(
    "--logging",
    ["column", "uniform"],
    "How the log was made: by the column --probability, or uniform draws from the candidates.",
)
@click.option(
    "--arm",
    "arms",
    multiple=True,
    metavar="[SHARE=]COL",
    callback=options.parse_arms,
    help="LOG is from an A/B test of rankings without logged probabilities: the column of the "
    "position that one of them gives each shown item, and its share of requests (default: equal). "
    "Repeat it for each ranking.",
)
@click.option(
    "--candidates",
    type=options.INPUT_FILE,
    metavar="FILE",
    help="What each request could show: a file of requests and items, of users and items, or of "
    "items. By default all items of LOG.",
)
@click.option(
    "--exclude",
    type=options.INPUT_FILE,
    metavar="TRAIN",
    help="A log of ratings whose items are no candidates of their users.",
)
@options.list_option(
    "--estimator",
    "estimators",
    type=POLICY_ESTIMATOR,
    help="How to estimate; see the list below. By default what the probabilities allow.",
)
@click.option(
    "--examination",
    metavar="TH,TH,...",
    callback=options.split_numbers,
    help="For pbm: the examination of each position, from the top, taken as known.",
)
@click.option(
    "--estimate-examination",
    is_flag=True,
    help="For pbm: estimate the examination from LOG, as `position-bias` does. Its error enters "
    "the intervals.",
)
@cell_option("For --estimate-examination: ")
@click.option(
    "--regression",
    metavar="Q,V",
    callback=options.split_commas,
    help="For dm, dr, iips-dr and cascade-dr: columns of LOG with predicted rewards and their "
    "policy means.",
)
@options.choice_option("--slot-worth", ["sum", "dcg"], "How much a reward counts at each position.")
@options.choice_option("--cluster", ["user", "request"], "What is independent.")
@options.level_option("Confidence level of the intervals.")
@click.option(
    "--max-weight",
    "transform",
    type=options.MaxWeightType(),
    metavar="W",
    help="Limit the weights to W, which adds bias.",
)
@options.choice_option(
    "--reader",
    ["auto", "memory", "duckdb"],
    "How to read LOG: in parts, or by one query of DuckDB, which needs no order of rows, but does "
    "not check that a request shows an item once. auto takes DuckDB if LOG does not fit into "
    "memory and policies are columns.",
)
@click.option(
    "--compare",
    nargs=2,
    metavar="A B",
    help="Compare two policies request by request; one may be logged.",
)
@options.fail_option("this holds: snips.ci_low<0.1, compare.snips.ci_low<0.")
@options.json_option
@options.table_option(
    "Also write the table (.csv, .tsv, .json, .jsonl, .parquet, .arrow; - is CSV on standard "
    "output) or a page (.html).",
    page=True,
)
@options.verbosity_options
@collect_request(PolicyRequest)
def evaluate(
    request: PolicyRequest,
    *,
    compare: tuple[str, str] | None,
    gates: tuple[Gate, ...],
    as_json: bool,
    output: str | None,
    quiet: bool,
) -> None:
    """Estimate what policies would earn in a request, and compare them with the logging policy.

    LOG has one shown item per row: request, user, item, position, reward, and the probability with
    which the logging policy showed it. Large files must be sorted by request, unless DuckDB reads
    them.

    \b
    Numbers that an expression of --fail-if can compare with a limit:
      ESTIMATOR.FIELD[.POLICY]          estimate, std_error, ci_low or ci_high
      compare.ESTIMATOR.FIELD[.POLICY]  difference, ci_low, ci_high or p_value, against
                                        logged; of A against B after --compare A B
      n_requests                        the number of requests

    \b
    Example:
      unskew policy evaluate l.csv --probability p --probability-is step --target q
      unskew policy evaluate shown.csv --ranking new=col --examination 1,0.5,0.33
      unskew policy evaluate shown.csv --logging uniform --model m.unskew -o r.html
      unskew policy evaluate ab.csv --arm old --arm new --ranking old --ranking new
      unskew policy evaluate shown.csv --ranking new --estimate-examination
      unskew policy evaluate l.csv --target a=p_a --target b=p_b --compare a b
      unskew policy evaluate l.parquet --target new=p_new --reader duckdb
    """  # noqa: D301
    from unskew.policies.result import LOGGED
    from unskew.workflows.gates import check_gates, require_passed
    from unskew.workflows.policies import (
        compare_policies,
        evaluate_policy_file,
        list_policy_numbers,
    )

    with show_progress(quiet, f"evaluating on {request.log}"):
        result = evaluate_policy_file(request)
    tripped = check_gates(gates, list_policy_numbers(result, compare))
    pair = compare_policies(result, *compare) if compare else []

    def to_json() -> str:
        rows = [json.loads(each.to_json()) for each in pair]
        return json.dumps(json.loads(result.to_json()) | ({"comparisons": rows} if rows else {}))

    if as_json:
        click.echo(to_json())
    elif output != "-":
        console = open_console()
        print_table(console, result.to_columns(), title="Values", caption=result.describe())
        with_logged = [
            each for name in result.policies for each in compare_policies(result, name, LOGGED)
        ]
        _print_comparisons(console, with_logged, "Each policy minus logged")
        if compare:
            _print_comparisons(console, pair, f"{compare[0]} minus {compare[1]}")
    for problem in result.problems():
        click.echo(f"warning: {render_message(problem)}", err=True)
    if output is not None:
        write_columns(result.to_columns(), output, quiet=quiet, to_json=to_json)
    require_passed(tripped)


def _print_comparisons(console: Console, comparisons: list[Comparison], title: str) -> None:
    names = ("first", "estimator", "difference", "ci_low", "ci_high", "p_value")
    columns = {name: [getattr(each, name) for each in comparisons] for name in names}
    columns["better"] = [
        "no interval" if math.isnan(each.ci_low) else each.better or UNDECIDED
        for each in comparisons
    ]
    caption = "Paired request by request; better: the policy to which the interval points."
    print_table(console, columns, title=title, caption=caption)


@policy.command("position-bias", short_help="Estimate how much less lower positions are examined.")
@options.impression_log_options
@options.impression_options
@cell_option()
@options.choice_option(
    "--method",
    ["conditional", "all_pairs", "swaps"],
    "Compare each cell with itself at other positions, use all pairs of positions, or read an "
    "experiment that swaps the first item with a lower one.",
)
@click.option(
    "--swap", metavar="COL", help="For swaps: the column with the lower position of the swap."
)
@options.choice_option("--cluster", ["cell", "user", "item"], "What is independent.")
@options.level_option("Confidence level of the intervals.")
@options.seed_option
@options.json_option
@options.table_option(
    "Also write the table (.csv, .tsv, .json, .jsonl, .parquet, .arrow; - is CSV on standard "
    "output) or a page (.html).",
    page=True,
)
@options.verbosity_options
@collect_request(PositionBiasRequest)
def position_bias(
    request: PositionBiasRequest, *, as_json: bool, output: str | None, quiet: bool
) -> None:
    """Estimate how much less lower positions are examined, from clicks on shown items.

    LOG has one shown item per row: request, user, item, position and click. Items must have been
    shown at several positions, for instance by several rankers.

    \b
    Example:
      unskew policy position-bias shown.csv
      unskew policy position-bias shown.csv --cell item --cluster item -o curve.html
      unskew policy position-bias swaps.csv --method swaps --swap swapped_with
    """  # noqa: D301
    from unskew.workflows.policies import estimate_position_bias

    with show_progress(quiet, f"reading {request.log}"):
        curve = estimate_position_bias(request)
    if as_json:
        click.echo(curve.to_json())
    elif output != "-":
        caption = "\n".join(curve.notes())
        title = "Examination of each position, relative to the first"
        print_table(open_console(), curve.to_columns(), title=title, caption=caption)
    if output is not None:
        write_columns(curve.to_columns(), output, quiet=quiet, to_json=curve.to_json)
