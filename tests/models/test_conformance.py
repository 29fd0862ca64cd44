"""What every recommender must do: one suite for all that are declared."""

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
from unskew.data.clicks import binarize
from unskew.data.ratings import Ratings
from unskew.errors import (
    ConvergenceWarning,
    NotFittedError,
    UnknownIdError,
    UnknownNameError,
    UnskewWarning,
    UsageError,
)
from unskew.estimators.transforms import Clip
from unskew.factorization.solution import IterativeModel
from unskew.models import PRESETS, RECOMMENDERS, find_recommender
from unskew.models.matrix_factorization import MatrixFactorization


@dataclass(frozen=True)
class Case:
    """A declared recommender or preset, with settings that keep a fit short."""

    name: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    is_weighted: bool = False
    """Whether a fit gets propensities."""

    def __str__(self) -> str:
        texts = [str(value) for value in self.settings.values() if isinstance(value, str)]
        return "-".join([self.name, *texts])

    def make(self, **more: Any) -> Any:
        target = find_recommender(self.name).target
        settings = {"n_factors": 3, "max_iter": 30, **SHORT} | dict(self.settings) | more
        valid = inspect.signature(target).parameters
        return target(**{name: value for name, value in settings.items() if name in valid})

    def propensities(self, log: Ratings) -> Any:
        return np.linspace(0.2, 0.6, len(log)) if self.is_weighted else None

    def fit(self, log: Ratings, **more: Any) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UnskewWarning)
            return self.make(**more).fit(log, self.propensities(log))


SHORT = {"n_clusters": 2, "n_restarts": 2, "model": MatrixFactorization(2, max_iter=10)}
APART = {"tdr", "logistic", "balanced", "dr-v2", "ips-v2", "stable-dr"}
"""They need propensities of all cells, clicks, or a log whose propensities can be balanced, which
the smallest logs are not."""
CLASSES = tuple(declaration.target for declaration in RECOMMENDERS.values())
TAKES_START = tuple(
    kind
    for kind in CLASSES
    if "initial_factors" in inspect.signature(kind.fit).parameters  # type: ignore[attr-defined]
)
WITH_PRESETS = {preset.target.model for preset in PRESETS.values()}
CASES = (
    *(
        Case(name, is_weighted=declaration.traits.get("needs_propensities", False))
        for name, declaration in RECOMMENDERS.items()
        if declaration.target not in WITH_PRESETS - {MatrixFactorization} and name not in APART
    ),
    *(
        Case(name, is_weighted=declaration.traits.get("reads_propensities", True))
        for name, declaration in PRESETS.items()
        if name not in APART
    ),
    Case("mf", {"loss": "absolute"}, is_weighted=True),
    Case("mf", {"weight_transform": Clip(3), "offsets": "free"}, is_weighted=True),
    Case("mrdr", {"imputer": MatrixFactorization(2), "offsets": "none"}, is_weighted=True),
    Case("dr-jl", {"imputation": "error", "n_rounds": 2}, is_weighted=True),
)


def some_log(n_users: int = 25, n_items: int = 18, *, levels: int = 5, seed: int = 0) -> Ratings:
    """Ids that are not codes; the last user and the last item have no rating, unless there are
    only one or two."""
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

    with pytest.warns(UnskewWarning, match=r"2 of 4 (users|items) were not in the log of the fit"):
        assert np.isfinite(model.predict(users, items)).all()
    assert np.isfinite(model.predict(users, items, on_unknown="fallback")).all()
    assert np.isnan(model.predict(users, items, on_unknown="nan")).tolist() == [
        False,
        True,
        True,
        True,
    ]
    with pytest.raises(UnknownIdError, match="'nobody' at row 1"):
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
    assert np.isfinite(model.recommend(["nobody"], k=2, on_unknown="fallback").scores).all()
    assert np.isnan(model.recommend(["nobody"], k=2, on_unknown="nan").scores).all()


@every_model
def test_a_file_brings_it_back_bit_for_bit(case: Case, fits: Fit, tmp_path: Path) -> None:
    model = fits(case)
    model.save(tmp_path / "model.unskew")
    again = unskew.load(tmp_path / "model.unskew")

    assert type(again) is type(model)
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


@pytest.mark.filterwarnings("ignore:model .* was trained on")
@every_model
def test_evaluate_takes_it(case: Case, fits: Fit) -> None:
    model = fits(case)
    metrics = ["mse", "dcg@3"] if model.predicts_ratings else ["dcg@3"]
    found = unskew.evaluate(LOG, {"model": model}, metrics=metrics, estimators=["naive"])

    assert all(np.isfinite(risk.estimate) for risk in found)


@pytest.mark.parametrize("kind", CLASSES)
def test_anything_but_a_log_is_refused(kind: type[Any]) -> None:
    for log in (np.ones((3, 3)), [[1, 2]], None):
        with pytest.raises(
            UsageError, match=f"the log must be unskew.Ratings, not {type(log).__name__}. Build one"
        ):
            kind().fit(log)
        with pytest.raises(UsageError, match="the log must be"):
            kind().fit(log=log)


def log_for(kind: type) -> Ratings:
    """``LOG``, or its clicks for a learner that needs ratings of 0 and 1."""
    return binarize(LOG, 3.0) if kind is unskew.models.LogisticFactorization else LOG


@pytest.mark.parametrize("kind", TAKES_START)
def test_a_start_must_be_factors_and_not_a_model(kind: type[Any]) -> None:
    log = log_for(kind)
    with pytest.raises(
        UsageError,
        match=r"must be Factors; got MatrixFactorization\. Pass initial_factors=model\.factors_",
    ):
        kind().fit(log, initial_factors=MatrixFactorization(1).fit(LOG))
    with pytest.raises(
        UsageError, match=r"got ndarray\. Pass the factors_ of a fitted factorisation"
    ):
        kind().fit(log, initial_factors=np.ones(3))


@pytest.mark.parametrize("kind", TAKES_START)
def test_a_start_of_another_shape_is_refused(kind: type) -> None:
    log = log_for(kind)
    start = MatrixFactorization(2).fit(LOG).factors_
    fewer = replace(start, user_factors=start.user_factors[:3], user_offset=start.user_offset[:3])

    with pytest.raises(UsageError, match=r"initial_factors has \(users, items, factors\)"):
        kind(2).fit(log, initial_factors=fewer)
    with pytest.raises(UsageError, match=r"initial_factors has \(users, items, factors\)"):
        kind(3).fit(log, initial_factors=start)


def test_models_of_clicks_say_that_their_predictions_are_not_ratings() -> None:
    clicks = {"allrank", "wmf", "expomf", "relmf"}

    assert clicks <= {
        name for name, model in RECOMMENDERS.items() if not model.target.predicts_ratings
    }
    assert MatrixFactorization.predicts_ratings


@every_model
def test_an_iterative_fit_tells_how_it_went(case: Case, fits: Fit) -> None:
    model = fits(case)
    if not hasattr(model, "history_"):
        pytest.skip(f"{case} is fitted in one step")

    assert model.n_iter_ == len(model.history_) - 1
    assert model.objective_ == model.history_[-1]
    assert model.converged_ == (model.stop_reason_ in ("converged", "stalled"))
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
        assert "inf" in (IterativeModel.__doc__ or "")


@pytest.mark.parametrize("case", [Case("allrank"), Case("wmf")], ids=str)
def test_an_unknown_user_gets_the_mean_users_items_if_items_have_no_offsets(
    case: Case, fits: Fit
) -> None:
    model = fits(case)
    mean = model.factors_.user_factors.mean(axis=0) @ model.factors_.item_factors.T

    assert (
        model.recommend(["nobody"], k=3, on_unknown="fallback").items[0].tolist()
        == LOG.items[np.argsort(-mean)[:3]].tolist()
    )


ITERATIVE = [case for case in CASES if isinstance(case.make(), IterativeModel)]


@pytest.mark.parametrize("case", ITERATIVE, ids=str)
def test_a_fit_that_stops_too_early_warns(case: Case) -> None:
    model = case.make(max_iter=1, tol=0.0)

    with pytest.warns(
        ConvergenceWarning, match=r"stopped after 1 step before it converged\. Raise max_iter or"
    ) as caught:
        model.fit(LOG, case.propensities(LOG))

    assert (model.converged_, model.stop_reason_) == (False, "max_iter")
    places = {each.filename for each in caught if each.category is ConvergenceWarning}
    assert places == {__file__}


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_a_configured_model_of_its_class(name: str) -> None:
    preset = PRESETS[name].target
    model = preset()

    assert type(model) is preset.model
    assert preset.fixed.items() <= model.get_params(deep=False).items()
    assert getattr(unskew.models, preset.name) is preset
    setting = next(iter(preset.fixed))
    with pytest.raises(UsageError, match=f"{preset.name} fixes {setting}="):
        preset(**{setting: None})


def test_an_unknown_recommender_is_refused_with_the_valid_names() -> None:
    with pytest.raises(UnknownNameError, match=r"unknown recommender 'mff'.* Did you mean 'mf'"):
        find_recommender("mff")


def test_recommendations_among_candidates_and_without_excluded_items() -> None:
    world = unskew.simulate(20, 12, density=0.3, alpha=0.9, random_state=0)
    model = unskew.MatrixFactorization(2, 1.0).fit(world.log, world.propensities)
    users = np.append(world.log.users[:5], world.log.users[0])
    other = world.log.take(world.log.item % 3 == 0)

    result = model.recommend(users, 12, exclude_seen=False, exclude=other, candidates=range(8))

    np.testing.assert_array_equal(result.items[0], result.items[5])
    for user, items, scores in zip(users, result.items, result.scores, strict=True):
        shown = set(items[np.isfinite(scores)].tolist())
        hidden = set(other.items[other.item[other.users[other.user] == user]].tolist())
        assert shown == set(range(8)) - hidden
