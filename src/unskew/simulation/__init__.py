"""Simulated logs whose complete ratings and true propensities are known."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from unskew.simulation.observation import (
        ByCovariates,
        ByRating,
        Observation,
        ObservationModel,
        Uniform,
    )
    from unskew.simulation.simulator import Simulation, simulate

__all__ = [
    "ByCovariates",
    "ByRating",
    "Observation",
    "ObservationModel",
    "Simulation",
    "Uniform",
    "simulate",
]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from unskew.simulation import observation, simulator

    return getattr(simulator if name in ("Simulation", "simulate") else observation, name)


def __dir__() -> list[str]:
    return __all__
