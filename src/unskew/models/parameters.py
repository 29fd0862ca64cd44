"""What a factorisation consists of."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.floating]


@dataclass(frozen=True, slots=True, eq=False)
class Parameters:
    """F_ui = v_u . w_i + a_u + b_i + c."""

    user_factors: Floats
    item_factors: Floats
    user_offset: Floats
    item_offset: Floats
    constant: float

    def penalty(self, *, with_offsets: bool) -> float:
        """||V||^2 + ||W||^2, and ||a||^2 + ||b||^2 + c^2 where offsets are penalised."""
        squares = [np.square(part).sum() for part in (self.user_factors, self.item_factors)]
        if with_offsets:
            squares += [np.square(self.user_offset).sum(), np.square(self.item_offset).sum(), self.constant**2]
        return float(sum(squares))
