"""The long run of the fuzzers: ``make fuzz``, which prints the table of docs/reliability.md."""

from __future__ import annotations

import argparse
import secrets
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

from fuzz.calls import Tally

BATCH_CALLS, BATCH_FILES = 20_000, 1000
TRIALS = {
    "calls": "try_calls({seed}, {size})",
    "files": "try_files({seed}, {size}, folder)",
    "wrong impressions": "try_impressions({seed}, {size}, folder, damages_bytes=False)",
    "damaged impressions": "try_impressions({seed}, {size}, folder, damages_bytes=True)",
}
CRASH = "crash"


def run_batch(kind: str, seed: int, size: int) -> Tally | str:
    """One batch in a process of its own, which a crash would end."""
    code = (
        "import pickle, sys, tempfile; from pathlib import Path\n"
        "from fuzz.calls import try_calls; from fuzz.files import try_files\n"
        "from fuzz.impressions import try_impressions\n"
        "folder = Path(tempfile.mkdtemp())\n"
        f"tally = {TRIALS[kind].format(seed=seed, size=size)}\n"
        "sys.stdout.buffer.write(pickle.dumps(tally))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    if done.returncode != 0:
        return f"{kind} with seed {seed}: exit code {done.returncode}: {done.stderr[-300:]!r}"
    import pickle

    tally: Tally = pickle.loads(done.stdout)
    print(f"{kind} with seed {seed}: {tally.tried:,} tried", file=sys.stderr, flush=True)
    return tally


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=100_000)
    parser.add_argument("--files", type=int, default=5_000)
    parser.add_argument("--impressions", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(1 << 30))
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    print(f"seed {options.seed}\n")
    print("| | tried | typed error | names it | finished | raw traceback | silent | slow | crash |")
    print("|---|---|---|---|---|---|---|---|---|")
    is_clean = True
    for kind, total, batch in (
        ("calls", options.calls, BATCH_CALLS),
        ("files", options.files, BATCH_FILES),
        ("wrong impressions", options.impressions // 2, BATCH_FILES),
        ("damaged impressions", options.impressions // 2, BATCH_FILES),
    ):
        sizes = [min(batch, total - first) for first in range(0, total, batch)]
        with ThreadPoolExecutor(options.processes) as pool:
            results = list(
                pool.map(
                    lambda number, size, kind=kind: run_batch(kind, options.seed + number, size),
                    range(len(sizes)),
                    sizes,
                )
            )
        tally = sum((each for each in results if isinstance(each, Tally)), Tally())
        crashes = [each for each in results if isinstance(each, str)]
        raw, silent, slow = (sum(each.values()) for each in (tally.raw, tally.silent, tally.slow))
        share = f"{tally.named / max(tally.typed, 1):.0%}"
        print(
            f"| {kind} | {tally.tried:,} | {tally.typed:,} | {share} | {tally.finished:,} | "
            f"{raw:,} | {silent:,} | {slow:,} | {len(crashes)} |",
            flush=True,
        )
        for problem in (*crashes, *tally.raw, *tally.silent, *tally.slow):
            print(f"    {problem}", file=sys.stderr)
        is_clean = is_clean and not (raw or silent or slow or crashes)
    sys.exit(0 if is_clean else 1)


if __name__ == "__main__":
    main()
