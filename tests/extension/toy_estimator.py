"""An estimator from another package: the plain mean under another name."""

from unskew.estimators import ESTIMATORS, Estimate, Estimator, Sums, SumSpec
from unskew.estimators.point import self_normalized


@ESTIMATORS.declare("half_naive", label="Half naive", summary="The plain mean, once more.")
class HalfNaive(Estimator):
    name = "half_naive"
    is_weighted = False

    def sums_needed(self, *, is_ratio, is_mean_of_users, cluster) -> SumSpec:
        return SumSpec(is_weighted=False, unit=cluster, is_ratio=True)

    def from_sums(self, spec, sums: Sums, scope) -> Estimate:
        return self_normalized(sums)
