"""What every recommender promises, whatever it is inside: one suite for all that can be saved."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone

import unskew
from unskew.data.ratings import Ratings
from unskew.errors import NotFittedError, UnknownIdError, UnskewWarning, UsageError
from unskew.estimators.transforms import Clip
from unskew.factorization.solution import Iterative
from unskew.models.all_rank import AllRank
from unskew.models.balanced import IPSV2, StableDR
from unskew.models.doubly_robust import DoublyRobustFactorization
from unskew.models.logistic import LogisticFactorization
from unskew.models.matrix_factorization import MatrixFactorization
from unskew.models.mixture import MultinomialMixture
from unskew.models.ordinal import OrdinalFactorization
from unskew.models.recommender import Recommender
from unskew.models.registry import MODELS
from unskew.models.robust_variants import DRV2, EIB, TDR
from unskew.models.tri_training import TriTraining
from unskew.models.weighted import WeightedFactorization


@dataclass(frozen=True)
class Case:
    """A model with settings that keep a fit short."""

    kind: type[Recommender]
    settings: Mapping[str, Any] = field(default_factory=dict)
    is_weighted: bool = False

    def __str__(self) -> str:
        return "-".join(
            [
                self.kind.__name__,
                *(str(value) for value in self.settings.values() if isinstance(value, str)),
            ]
        )

    def fit(self, log: Ratings, **more: Any) -> Any:
        known = inspect.signature(self.kind).parameters
        settings = {"n_factors": 3, "max_iter": 30} | dict(self.settings) | more
        model = self.kind(**{name: value for name, value in settings.items() if name in known})
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UnskewWarning)
            return model.fit(log, np.linspace(0.2, 0.6, len(log)) if self.is_weighted else None)  # type: ignore[attr-defined]


MIXTURE = {"n_clusters": 2, "n_restarts": 2}
APART = (TDR, LogisticFactorization, DRV2, IPSV2, StableDR)
"""These need propensities of all cells, clicks, or a log that propensities can be balanced on, which the smallest are not."""
SPECIAL = (
    Case(MatrixFactorization, {"loss": "absolute"}, is_weighted=True),
    *(
        Case(MultinomialMixture, {"mechanism": each, **MIXTURE}, is_weighted=each != "mar")
        for each in ("mar", "cpt-v", "logit-vd")
    ),
    Case(MatrixFactorization, {"weight_transform": Clip(3), "offsets": "free"}, is_weighted=True),
    Case(
        DoublyRobustFactorization,
        {"weighting": "mrdr", "imputer": MatrixFactorization(2)},
        is_weighted=True,
    ),
    Case(
        DoublyRobustFactorization,
        {"imputation": "error", "weighting": "dr-jl", "n_rounds": 2},
        is_weighted=True,
    ),
    Case(EIB),
    Case(TriTraining, {"model": MatrixFactorization(2, max_iter=10)}, is_weighted=True),
    *(
        Case(OrdinalFactorization, {"mechanism": each}, is_weighted=each == "mnar")
        for each in ("mar", "mnar")
    ),
)
CASES = (
    *(
        Case(kind)
        for kind in MODELS
        if kind not in {each.kind for each in SPECIAL} | {MatrixFactorization, *APART}
    ),
    Case(MatrixFactorization),
    *SPECIAL,
)


def some_log(n_users: int = 25, n_items: int = 18, *, levels: int = 5, seed: int = 0) -> Ratings:
    """Ids that are not codes; the last user and the last item of the vocabulary have no rating, where there are several."""
    rng = np.random.default_rng(seed)
    users, items = (
        np.array([f"u{k}" for k in range(n_users)]),
        np.array([f"i{k}" for k in range(n_items)]),
    )
    seen = rng.random((n_users, n_items)) < 0.4
    seen[0, 0] = True
    if n_users > 2:
        seen[-1] = False
    if n_items > 2:
        seen[:, -1] = False
    user, item = np.nonzero(seen)
    rating = rng.integers(1, levels + 1, user.size)
    return Ratings.from_arrays(users[user], items[item], rating, users=users, items=items)


LOG = some_log()
every_model = pytest.mark.parametrize("case", CASES, ids=str)
Fit = Callable[[Case], Any]


@pytest.fixture(scope="module")
def fits() -> Fit:
    """Each model fitted once."""
    found: dict[str, Any] = {}

    def fit(case: Case) -> Any:
        if str(case) not in found:
            found[str(case)] = case.fit(LOG)
        return found[str(case)]

    return fit


def grid(model: Any) -> np.ndarray:
    users, items = np.repeat(LOG.users, LOG.n_items), np.tile(LOG.items, LOG.n_users)
    return model.predict(users, items)


@every_model
def test_every_cell_has_a_finite_prediction(case: Case, fits: Fit) -> None:
    values = grid(fits(case))

    assert values.shape == (LOG.n_users * LOG.n_items,)
    assert np.isfinite(values).all()


@every_model
def test_unknown_ids_fall_back_become_nan_or_are_refused(case: Case, fits: Fit) -> None:
    model = fits(case)
    users, items = ["u0", "nobody", "u1", "nobody"], ["i0", "i1", "nothing", "nothing"]

    assert np.isfinite(model.predict(users, items)).all()
    assert np.isnan(model.predict(users, items, on_unknown="nan")).tolist() == [
        False,
        True,
        True,
        True,
    ]
    with pytest.raises(UnknownIdError, match="'nobody' at place 1"):
        model.predict(users, items, on_unknown="raise")


@every_model
def test_recommendations_are_unseen_items_from_best_to_worst(case: Case, fits: Fit) -> None:
    model = fits(case)
    found = model.recommend(LOG.users, k=5)
    rated = {
        user: set(LOG.items[LOG.item[LOG.user == code]]) for code, user in enumerate(LOG.users)
    }

    for user, items, scores in zip(found.users, found.items, found.scores, strict=True):
        held = np.isfinite(scores)
        assert not rated[user] & set(items[held])
        assert (np.diff(scores[held]) <= 0).all()
    assert np.isfinite(model.recommend(["nobody"], k=2).scores).all()
    assert np.isnan(model.recommend(["nobody"], k=2, on_unknown="nan").scores).all()


@every_model
def test_a_file_brings_it_back_bit_for_bit(case: Case, fits: Fit, tmp_path: Path) -> None:
    model = fits(case)
    model.save(tmp_path / "model.unskew")
    again = unskew.load(tmp_path / "model.unskew")

    assert type(again) is case.kind
    assert repr(again) == repr(model)
    assert (grid(again) == grid(model)).all()
    assert (
        again.recommend(["u3"], k=3).items.tolist() == model.recommend(["u3"], k=3).items.tolist()
    )


@every_model
def test_scikit_learn_can_clone_it(case: Case, fits: Fit) -> None:
    model = fits(case)

    assert repr(clone(model)) == repr(model)
    with pytest.raises(NotFittedError):
        clone(model).predict(["u0"], ["i0"])


@every_model
def test_the_same_seed_and_any_number_of_threads_give_the_same_bits(case: Case, fits: Fit) -> None:
    for settings in ({"random_state": 0}, {"n_threads": 1}, {"n_threads": 3}):
        assert (grid(case.fit(LOG, **settings)) == grid(fits(case))).all()


@every_model
@pytest.mark.parametrize("shape", [(1, 8), (8, 1), (1, 1), (2, 2)])
def test_the_smallest_logs_can_be_learnt_from(case: Case, shape: tuple[int, int]) -> None:
    log = some_log(*shape)
    model = case.fit(log)

    assert np.isfinite(model.predict(log.users[log.user], log.items[log.item])).all()
    assert len(model.recommend(log.users, k=1).users) == shape[0]


@every_model
def test_constant_ratings_can_be_learnt_from(case: Case) -> None:
    model = case.fit(some_log(levels=1))

    assert np.isfinite(grid(model)).all()


@every_model
def test_evaluate_takes_it(case: Case, fits: Fit) -> None:
    model = fits(case)
    metrics = ["mse", "dcg@3"] if model.predicts_ratings else ["dcg@3"]
    found = unskew.evaluate(LOG, {"model": model}, metrics=metrics, estimators=["naive"])

    assert all(np.isfinite(risk.estimate) for risk in found)


@pytest.mark.parametrize("kind", MODELS)
def test_what_is_no_log_is_refused_in_words(kind: type[Any]) -> None:
    model = kind(MatrixFactorization()) if kind is TriTraining else kind()
    for log in (np.ones((3, 3)), [[1, 2]], None):
        with pytest.raises(
            UsageError, match=f"the log must be unskew.Ratings, not {type(log).__name__}: build one"
        ):
            model.fit(log)
        with pytest.raises(UsageError, match="the log must be"):
            model.fit(log=log)


@pytest.mark.parametrize(
    "kind", [kind for kind in MODELS if "warm_start" in inspect.signature(kind.fit).parameters]
)  # type: ignore[attr-defined]
def test_a_model_is_no_start_but_its_parameters_are(kind: type[Any]) -> None:
    with pytest.raises(
        UsageError, match=r"not MatrixFactorization: pass warm_start=model\.parameters_"
    ):
        kind().fit(LOG, warm_start=MatrixFactorization(1, max_iter=2).fit(LOG))
    with pytest.raises(
        UsageError, match="not ndarray: pass the parameters_ of a fitted factorisation"
    ):
        kind().fit(LOG, warm_start=np.ones(3))


@pytest.mark.parametrize(
    "kind", [kind for kind in MODELS if "warm_start" in inspect.signature(kind.fit).parameters]
)  # type: ignore[attr-defined]
def test_a_warm_start_of_another_shape_is_refused(kind: type) -> None:
    start = MatrixFactorization(2, max_iter=2).fit(LOG).parameters_
    fewer = replace(start, user_factors=start.user_factors[:3], user_offset=start.user_offset[:3])
    bent = replace(start, item_offset=start.item_offset[:3])

    for other in (fewer, bent):
        with pytest.raises(UsageError, match=r"warm_start has \(users, items, factors\)"):
            kind(2).fit(LOG, warm_start=other)
    with pytest.raises(UsageError, match=r"warm_start has \(users, items, factors\)"):
        kind(3).fit(LOG, warm_start=start)


def test_those_that_learn_from_clicks_say_that_their_scores_are_no_ratings() -> None:
    clicks = {"AllRank", "WeightedFactorization", "ExposureFactorization", "RelevanceFactorization"}

    assert clicks <= {kind.__name__ for kind in MODELS if not kind.predicts_ratings}
    assert MatrixFactorization.predicts_ratings


@every_model
def test_an_iterative_fit_tells_how_it_went(case: Case, fits: Fit) -> None:
    model = fits(case)
    if not hasattr(model, "history_"):
        pytest.skip(f"{case} is fitted in one step")

    assert model.n_iter_ == len(model.history_) - 1
    assert model.objective_ == model.history_[-1]
    assert isinstance(model.converged_, bool)
    assert model.history_[-1] <= model.history_[1]


@every_model
def test_only_the_start_may_have_no_objective_and_the_documentation_says_so(
    case: Case, fits: Fit
) -> None:
    model = fits(case)
    if not hasattr(model, "history_"):
        pytest.skip(f"{case} is fitted in one step")

    assert np.isfinite(model.history_[1:]).all()
    if not np.isfinite(model.history_[0]):
        assert model.history_[0] == np.inf
        assert "inf" in (Iterative.__doc__ or "")


@pytest.mark.parametrize(
    "case", [Case(kind) for kind in MODELS if kind in (AllRank, WeightedFactorization)], ids=str
)
def test_a_stranger_gets_what_the_mean_user_would_where_items_have_no_offsets(
    case: Case, fits: Fit
) -> None:
    model = fits(case)
    mean = model.parameters_.user_factors.mean(axis=0) @ model.parameters_.item_factors.T

    assert (
        model.recommend(["nobody"], k=3).items[0].tolist()
        == LOG.items[np.argsort(-mean)[:3]].tolist()
    )
