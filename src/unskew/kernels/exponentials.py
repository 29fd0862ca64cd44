"""Exponentials of many numbers at once, in loops that the compiler turns into vector code.

With n the integer next to x / log 2, exp(x) = 2^n exp(r) and abs(r) = abs(x - n log 2) < 0.35. A
polynomial gives exp(r). Adding ``SHIFT`` to x / log 2 leaves n in the last bits of the sum, and
moving these to the exponent of a number gives 2^n.
"""

from __future__ import annotations

import numpy as np

from unskew.kernels.compiling import compiled
from unskew.types import Vector

LARGEST = 708.0
"""exp(x) is computed as exp(-708) below -708 and as exp(708) above 708."""
SHIFT = 1.5 * 2.0**52
PER_LOG_2 = 1.4426950408889634
LOG_2_HIGH, LOG_2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
"""Their sum is log 2; the product of the first one and n is exact."""
EXPONENT_OF_ONE = 1023
MANTISSA_BITS = 52


@compiled
def exponentiate(x: Vector, n: int, powers: Vector) -> None:
    """x[k] = exp(x[k]) for the first ``n`` numbers; ``powers`` has room for as many numbers."""
    bits = powers.view(np.int64)
    for k in range(n):
        value = x[k]
        value = -LARGEST if value < -LARGEST else value
        value = LARGEST if value > LARGEST else value
        shifted = value * PER_LOG_2 + SHIFT
        powers[k] = shifted
        whole = shifted - SHIFT
        r = (value - whole * LOG_2_HIGH) - whole * LOG_2_LOW
        high = 1 / 40320 + r * (1 / 362880 + r * (1 / 3628800 + r * (1 / 39916800 + r / 479001600)))
        low = 1 / 24 + r * (1 / 120 + r * (1 / 720 + r * (1 / 5040 + r * high)))
        x[k] = 1.0 + r * (1.0 + r * (1 / 2 + r * (1 / 6 + r * low)))
    for k in range(n):
        bits[k] = (bits[k] + EXPONENT_OF_ONE) << MANTISSA_BITS
    for k in range(n):
        x[k] *= powers[k]
