"""A fit on a cluster whose driver is killed, and the same fit continued by a new driver.

``killed_driver.py CHECKPOINT kill`` kills its own process at the sixth of twelve sweeps. Without
``kill`` it continues, fits once more without a checkpoint, and prints as JSON whether both fits are
the same.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any

from killed_worker import KILL_AT, compare, fit, make_frame, open_session

from unskew.engines.spark.solving import SparkSweeps


def main() -> None:
    session = open_session()
    frame = make_frame(session)
    advance, steps = SparkSweeps.advance, []

    def advance_or_die(solver: SparkSweeps, state: Any) -> Any:
        steps.append(state)
        if len(steps) == KILL_AT and "kill" in sys.argv:
            os.kill(os.getpid(), signal.SIGKILL)
        return advance(solver, state)

    SparkSweeps.advance = advance_or_die  # type: ignore[method-assign]
    continued = fit(frame, checkpoint=sys.argv[1], checkpoint_every=2)
    n_steps = len(steps)
    print(json.dumps({"n_steps": n_steps, **compare(fit(frame), continued)}))
    session.stop()


if __name__ == "__main__":
    main()
