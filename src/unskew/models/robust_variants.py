"""Published relatives of doubly robust learning that are one setting of it."""

from __future__ import annotations

from typing import Literal

from unskew.estimators.transforms import WeightTransform
from unskew.factorization.objective import Offsets
from unskew.models.doubly_robust import DoublyRobustFactorization
from unskew.models.imputation import Weighting
from unskew.models.matrix_factorization import MatrixFactorization


class EIB(DoublyRobustFactorization):
    """Error imputation: observed losses on the log, imputed ones elsewhere. It reads no propensities.

        min  sum over the log of (Y - F)^2  +  sum over all other cells of (G - F)^2  +  l2_eff (||V||^2 + ...)

    Right if the imputation G is, and only then (H. Steck, *Training and testing of recommender systems on data missing not at
    random*, KDD 2010). Settings are those of :class:`DoublyRobustFactorization`.
    """

    def __init__(
        self,
        n_factors: int = 20,
        l2: float = 1.0,
        *,
        offsets: Offsets = "regularized",
        imputer: MatrixFactorization | None = None,
        max_iter: int = 500,
        tol: float = 1e-6,
        dtype: Literal["float64", "float32"] = "float64",
        n_threads: int | None = None,
        random_state: int = 0,
        verbose: bool = False,
    ) -> None:
        super().__init__(
            n_factors,
            l2,
            offsets=offsets,
            imputer=imputer,
            weighting="eib",
            max_iter=max_iter,
            tol=tol,
            dtype=dtype,
            n_threads=n_threads,
            random_state=random_state,
            verbose=verbose,
        )


class TDR(DoublyRobustFactorization):
    """Targeted doubly robust learning: imputed losses l are shifted to l + e (h - 1), h = 1 / P.

        min  sum over all cells of  l + e (h - 1)  +  sum over the log of  h (delta - l - e (h - 1))  +  penalty

    e is least squares of delta - l on h - 1 over the log, so that sum_O (h - 1) (delta - l - e (h - 1)) = 0 and doubly robust
    estimation equals error imputation with the shifted losses. For squared loss this is once more a factorisation of
    T = G + h' (Y - G), with h' = 1 + c (h - 1); see ``models/targeting.py`` (H. Li, Y. Lyu, C. Zheng & P. Wu, *TDR-CL: targeted
    doubly robust collaborative learning for debiased recommendations*, ICLR 2023). ``fit`` needs the propensities of all cells,
    as a users x items matrix. Settings are those of :class:`DoublyRobustFactorization`.
    """

    def __init__(
        self,
        n_factors: int = 20,
        l2: float = 1.0,
        *,
        offsets: Offsets = "regularized",
        imputer: MatrixFactorization | None = None,
        weighting: Weighting = "mrdr",
        weight_transform: WeightTransform | None = None,
        max_iter: int = 500,
        tol: float = 1e-6,
        dtype: Literal["float64", "float32"] = "float64",
        n_threads: int | None = None,
        random_state: int = 0,
        verbose: bool = False,
    ) -> None:
        super().__init__(
            n_factors,
            l2,
            offsets=offsets,
            imputer=imputer,
            weighting=weighting,
            targeted=True,
            weight_transform=weight_transform,
            max_iter=max_iter,
            tol=tol,
            dtype=dtype,
            n_threads=n_threads,
            random_state=random_state,
            verbose=verbose,
        )


class DRV2(DoublyRobustFactorization):
    """DR-V2: doubly robust learning with propensities that balance the predictions.

        sum over the log of F / P'  =  sum over all cells of F,      logit P' = logit P - m0 - m1 F,      F of the round before

    and the objective of :class:`DoublyRobustFactorization` with P'. For a loss that is linear in F, IPS with P' has no error,
    whatever P was (H. Li, Y. Xiao, C. Zheng, P. Wu & P. Cui, *Propensity matters: towards measuring and enhancing balancing for
    recommendation*, ICML 2023; there the difference is a penalty of the propensity model, here it is 0).
    """

    def __init__(
        self,
        n_factors: int = 20,
        l2: float = 1.0,
        *,
        offsets: Offsets = "regularized",
        imputer: MatrixFactorization | None = None,
        weighting: Weighting = "dr-jl",
        weight_transform: WeightTransform | None = None,
        n_rounds: int = 3,
        max_iter: int = 500,
        tol: float = 1e-6,
        dtype: Literal["float64", "float32"] = "float64",
        n_threads: int | None = None,
        random_state: int = 0,
        verbose: bool = False,
    ) -> None:
        super().__init__(
            n_factors,
            l2,
            offsets=offsets,
            imputer=imputer,
            weighting=weighting,
            is_balanced=True,
            weight_transform=weight_transform,
            n_rounds=n_rounds,
            max_iter=max_iter,
            tol=tol,
            dtype=dtype,
            n_threads=n_threads,
            random_state=random_state,
            verbose=verbose,
        )
