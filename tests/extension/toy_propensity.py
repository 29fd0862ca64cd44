"""A propensity model from another package: the same number for every cell."""

from dataclasses import dataclass
from typing import Self

import numpy as np

from unskew.propensity import PROPENSITY_MODELS, PropensityModel
from unskew.propensity.model import require_universe
from unskew.settings import Number, setting


@PROPENSITY_MODELS.declare("constant", label="Constant", summary="One number for every cell.")
@dataclass(eq=False, repr=False)
class ConstantPropensity(PropensityModel):
    value: float = setting(0.25, Number(above=0, most=1))

    def fit(self, log, *, universe=None) -> Self:
        self._check_settings()
        self._record_log(log, require_universe(log, universe))
        return self

    def _predict_codes(self, user, item, rating):
        return np.full(user.size, self.value)
