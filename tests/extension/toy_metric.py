"""A metric from another package: how often a prediction is within half a star."""

import numpy as np

from unskew.metrics import METRICS, Delta, MetricInput


@METRICS.declare("within_half", label="Within half a star", summary="Share within half a star.")
class WithinHalf:
    name = "within_half"
    higher_is_better = True
    ranks = False
    top = None

    def __call__(self, cells: MetricInput, /) -> Delta:
        error = np.abs(cells.rating - cells.require_predictions())
        return Delta(np.where(error <= 0.5, 1.0, 0.0))
