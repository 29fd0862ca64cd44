"""Recommenders by the names that users type."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from unskew.errors import UnknownNameError, UsageError
from unskew.models.all_rank import AllRank
from unskew.models.balanced import IPSV2, StableDR
from unskew.models.baselines import GlobalMean, OffsetsOnly, Popularity
from unskew.models.doubly_robust import DoublyRobustFactorization
from unskew.models.exposure import ExposureFactorization
from unskew.models.matrix_factorization import MatrixFactorization
from unskew.models.mixture import MultinomialMixture
from unskew.models.ordinal import OrdinalFactorization
from unskew.models.recommender import Recommender
from unskew.models.relevance import RelevanceFactorization
from unskew.models.robust_variants import DRV2, EIB
from unskew.models.weighted import WeightedFactorization

Loss = Literal["squared", "absolute"]
Offsets = Literal["regularized", "free", "none"]


@dataclass(frozen=True, slots=True)
class Learner:
    """A kind of recommender with some settings made."""

    kind: type[Recommender]
    settings: Mapping[str, Any] = field(default_factory=dict)
    reads_propensities: bool = True
    """False where a fit takes them and has no use for them."""

    def model(self, given: Mapping[str, Any]) -> Any:
        """The model, not fitted. A setting that somebody chose and the kind does not have is refused; None is not chosen."""
        known = inspect.signature(self.kind).parameters
        chosen = {name: value for name, value in given.items() if value is not None}
        unknown = [name for name in chosen if name not in known and name not in ALWAYS]
        if unknown:
            has = f"it has {', '.join(known)}" if known else "it has none"
            raise UsageError(f"{self.kind.__name__} has no setting {unknown[0]!r}; {has}.")
        return self.kind(
            **{
                name: value
                for name, value in (dict(self.settings) | chosen).items()
                if name in known
            }
        )


ALWAYS = frozenset({"random_state", "verbose", "n_threads"})
"""Given whether or not a kind has any use for them."""

LEARNERS: Mapping[str, Learner] = {
    "mf": Learner(MatrixFactorization),
    "dr-jl": Learner(DoublyRobustFactorization, {"weighting": "dr-jl"}),
    "mrdr": Learner(DoublyRobustFactorization, {"weighting": "mrdr"}),
    "dr-bias": Learner(DoublyRobustFactorization, {"weighting": "dr-bias"}),
    "dr-mse": Learner(DoublyRobustFactorization, {"weighting": "dr-mse"}),
    "eib": Learner(EIB, reads_propensities=False),
    "stable-dr": Learner(StableDR),
    "ips-v2": Learner(IPSV2),
    "dr-v2": Learner(DRV2),
    "hl-mar": Learner(OrdinalFactorization, {"mechanism": "mar"}, reads_propensities=False),
    "hl-mnar": Learner(OrdinalFactorization, {"mechanism": "mnar"}),
    "mixture": Learner(MultinomialMixture, {"mechanism": "mar"}, reads_propensities=False),
    "cpt-v": Learner(MultinomialMixture, {"mechanism": "cpt-v"}),
    "logit-vd": Learner(MultinomialMixture, {"mechanism": "logit-vd"}),
    "allrank": Learner(AllRank),
    "wmf": Learner(WeightedFactorization),
    "expomf": Learner(ExposureFactorization),
    "relmf": Learner(RelevanceFactorization),
    "offsets": Learner(OffsetsOnly),
    "mean": Learner(GlobalMean),
    "popularity": Learner(Popularity),
}


def learner_named(name: str) -> Learner:
    """The learner of that name."""
    if name not in LEARNERS:
        raise UnknownNameError("learner", name, LEARNERS)
    return LEARNERS[name]
