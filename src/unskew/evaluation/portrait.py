"""What a page shows of the cells behind an evaluation: their ratings and weights, and what clipping would do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from unskew.estimators.transforms import Clip
from unskew.evaluation.evidence import Evidence
from unskew.evaluation.robustness import CLIP, Shift
from unskew.types import Vector

MOST_VALUES = 20
"""Different ratings that are shown one by one; more are put into as many bins."""
MOST_WEIGHTS, WEIGHT_BINS = 8, 16
N_CLIPS = 8


@dataclass(frozen=True, slots=True)
class RatingShares:
    """How often each rating is in the log, and how often it would be if all cells were."""

    low: tuple[float, ...]
    high: tuple[float, ...]
    """The same as ``low`` where every rating has a bin of its own."""
    seen: tuple[float, ...]
    corrected: tuple[float, ...] | None
    """Shares weighted by 1/P; None where nothing is weighted."""

    @classmethod
    def of(cls, rating: Vector, weight: Vector | None) -> RatingShares:
        """Count; and add up the weights."""
        values, place = np.unique(rating, return_inverse=True)
        low = high = values
        if values.size > MOST_VALUES:
            edges = np.linspace(values[0], values[-1], MOST_VALUES + 1)
            place, low, high = (
                np.clip(np.searchsorted(edges, rating, side="right") - 1, 0, MOST_VALUES - 1),
                edges[:-1],
                edges[1:],
            )
        seen = np.bincount(place, minlength=low.size) / rating.size
        held = (
            None
            if weight is None
            else np.bincount(place, weights=weight, minlength=low.size) / weight.sum()
        )
        corrected = None if held is None else tuple(held.tolist())
        return cls(tuple(low.tolist()), tuple(high.tolist()), tuple(seen.tolist()), corrected)


@dataclass(frozen=True, slots=True)
class WeightShares:
    """How many cells have weights of which size, and how much of the sum they hold."""

    low: tuple[float, ...]
    high: tuple[float, ...]
    """The same as ``low`` where every weight has a bin of its own; else bins are alike on a logarithmic axis."""
    rows: tuple[float, ...]
    held: tuple[float, ...]
    median: float
    largest: float

    @classmethod
    def of(cls, weight: Vector) -> WeightShares:
        """Measure weights; what has none lies in the first bin."""
        values = np.unique(weight[weight > 0])
        if values.size <= MOST_WEIGHTS:
            place, low, high = (
                np.clip(np.searchsorted(values, weight), 0, values.size - 1),
                values,
                values,
            )
        else:
            edges = np.geomspace(values[0], values[-1], WEIGHT_BINS + 1)
            place = np.clip(np.searchsorted(edges, weight, side="right") - 1, 0, WEIGHT_BINS - 1)
            low, high = edges[:-1], edges[1:]
        rows = np.bincount(place, minlength=low.size) / weight.size
        held = np.bincount(place, weights=weight, minlength=low.size) / weight.sum()
        bins = tuple(low.tolist()), tuple(high.tolist()), tuple(rows.tolist()), tuple(held.tolist())
        return cls(*bins, float(np.median(weight)), float(values[-1]))


def portrait(cells: Evidence | None, models: Sequence[str], *, level: float) -> dict[str, Any]:
    """The three as they stand in JSON; null where the cells were not kept, or do not tell."""
    if cells is None:
        return {"ratings": None, "weight_shares": None, "clipping": None}
    is_weighted = any(each.is_weighted for each in cells.estimators.values()) and bool(
        cells.sample.weight.any()
    )
    weight = cells.sample.weight if is_weighted else None
    return {
        "ratings": None if cells.rating is None else asdict(RatingShares.of(cells.rating, weight)),
        "weight_shares": None if weight is None else asdict(WeightShares.of(weight)),
        "clipping": [asdict(shift) for shift in _clipped(cells, models, level)]
        if weight is not None
        else None,
    }


def _clipped(cells: Evidence, models: Sequence[str], level: float) -> list[Shift]:
    """The first metric by one estimator under clipped weights; nothing where they are transformed or resampled already."""
    sample, weight = cells.sample, cells.sample.weight
    if sample.transform is not None or sample.users.resampling is not None:
        return []
    metric, deltas = next(iter(cells.deltas.items()))
    weighted = {name: each for name, each in cells.estimators.items() if each.is_weighted}
    name = "snips" if "snips" in weighted else next(iter(weighted))
    shifts = []
    for limit in sorted(
        {float(each) for each in np.geomspace(max(np.median(weight), 1.0), weight.max(), N_CLIPS)}
    ):
        found = weighted[name](deltas, replace(sample, transform=Clip(limit)))
        share = float((weight > limit).mean())
        for place, model in enumerate(models):
            at = found.of(place, level=level)
            shifts.append(
                Shift(model, metric, name, CLIP, limit, at.value, at.value, at.low, at.high, share)
            )
    return shifts
