"""The tables and figures of Schnabel et al. 2016, reproduced, the demo, and the leaderboard's data.

Unlike the rest of the library, this package holds complete users x items matrices in memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from unskew.registry import Registry, exported_names

if TYPE_CHECKING:
    from unskew.model_selection.protocols import LeaderboardData
    from unskew.paper.reproduction import Reproduction

EXPERIMENTS: Registry[Callable[..., Reproduction]] = Registry("experiment", "unskew.paper")
"""Functions that reproduce a table or figure of the paper.

All of them take ``trials``, ``random_state`` and ``track``. Traits: ``order`` (in the paper),
``trials`` (their default number), ``data`` (the data set that the experiment can use or needs;
None if it uses none; the function then has an argument ``data``), ``needs_data`` (whether it
cannot run without), and ``panels`` (values of the argument ``panel``, if there is one).
"""
WORLDS: Registry[Callable[..., LeaderboardData]] = Registry("world", "unskew.paper")
"""Data for a leaderboard: functions of ``data``, the folder of the data sets.

Trait ``needs_data``: whether the world cannot be made without that folder.
"""

__getattr__, __dir__ = exported_names(
    (EXPERIMENTS, WORLDS), {"Demo": "demo", "Reproduction": "reproduction", "run_demo": "demo"}
)
