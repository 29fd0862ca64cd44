"""The long run of the fault injections: ``make faults``, which prints tables in Markdown."""

from __future__ import annotations

import argparse
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

from faults.interrupts import CASES, interrupt, interrupt_spark
from faults.kills import KINDS, kill_often


def run_kills(n_kills: int, seed: int) -> bool:
    """Kill each kind of work; whether nothing was wrong afterwards."""
    print(
        "| killed (SIGKILL) | kills | corrupt files | other bits | temporary file until the next "
        "write | after it |"
    )
    print("|---|---|---|---|---|---|")
    is_clean = True
    for kind in KINDS:
        with tempfile.TemporaryDirectory() as folder:
            tally = kill_often(kind, n_kills, Path(folder), seed)
        counts = (tally.kills, tally.corrupt, tally.other_bits, tally.abandoned, tally.stale)
        print(f"| {kind.name} | {' | '.join(map(str, counts))} |", flush=True)
        is_clean = is_clean and tally.is_clean
    return is_clean


def run_interrupts(n_ratings: int, after: float) -> bool:
    """Interrupt each case; whether all came back within a second of processor time."""
    print(f"\n| Ctrl-C, {n_ratings:,} ratings | seconds | processor seconds | half-written files |")
    print("|---|---|---|---|")
    is_clean = True
    for case in CASES:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            result = interrupt(case, folder / "state", n_ratings=n_ratings, after=after)
            left = [each for each in folder.iterdir() if each.name != "state"]
        seconds = f"{result.seconds:.2f}" if result.was_interrupted else "not interrupted"
        print(f"| {case} | {seconds} | {result.processor_seconds:.2f} | {len(left)} |", flush=True)
        is_clean = is_clean and result.was_interrupted and not left
        is_clean = is_clean and result.processor_seconds < 1.0
    return is_clean


def run_spark_interrupt(after: float) -> bool:
    """Interrupt a fit on Spark; whether it ended, and the session still works."""
    result = interrupt_spark(after)
    print("\n| Ctrl-C | seconds | seconds until no job runs | processor seconds |")
    print("|---|---|---|---|")
    columns = ("seconds", "seconds_until_idle", "processor_seconds")
    numbers = " | ".join(f"{result[column]:.2f}" for column in columns)
    print(f"| fit on Spark | {numbers} |", flush=True)
    return bool(result["was_interrupted"] and result["still_works"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--ratings", type=int, default=10_000_000)
    parser.add_argument("--after", type=float, default=20.0, help="processor seconds of work")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    is_clean = run_kills(options.kills, options.seed)
    is_clean = run_interrupts(options.ratings, options.after) and is_clean
    if find_spec("pyspark"):
        is_clean = run_spark_interrupt(options.after) and is_clean
    sys.exit(0 if is_clean else 1)


if __name__ == "__main__":
    main()
