"""What all recommenders of positive-only logs have in common."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone

from factor_models import predict_matrix
from unskew.data.ratings import Ratings
from unskew.errors import BadPropensityError, NotFittedError, UnknownIdError, UsageError
from unskew.io.model_files import read_model
from unskew.models.all_cells import AllCellsRecommender
from unskew.models.all_rank import AllRank
from unskew.models.exposure import ExposureFactorization
from unskew.models.matrix_factorization import MatrixFactorization
from unskew.models.relevance import RelevanceFactorization
from unskew.models.weighted import WeightedFactorization

pytestmark = pytest.mark.filterwarnings("ignore::unskew.errors.ConvergenceWarning")

MODELS = (AllRank, WeightedFactorization, ExposureFactorization, RelevanceFactorization)
PENALTIES = {
    AllRank: "ridge_per_weight",
    WeightedFactorization: "ridge",
    ExposureFactorization: "prior_precision",
    RelevanceFactorization: "l2",
}
every_model = pytest.mark.parametrize("kind", MODELS)


def some_log(n_users: int = 40, n_items: int = 30, density: float = 0.2, seed: int = 0) -> Ratings:
    """Ratings 1 to 5; the first user and the last item have none, where there are others."""
    rng = np.random.default_rng(seed)
    seen = rng.random((n_users, n_items)) < density
    if min(n_users, n_items) > 2:
        seen[0], seen[:, -1] = False, False
    matrix = np.where(seen, rng.integers(1, 6, seen.shape), 0)
    return Ratings.from_dense(matrix)


LOG = some_log()


@every_model
def test_the_objective_never_rises(kind: Any) -> None:
    model = kind(4, random_state=3, tol=0.0, max_iter=40).fit(LOG)

    assert len(model.history_) == 41
    assert all(
        later <= earlier + 1e-12 * abs(earlier) for earlier, later in pairwise(model.history_)
    )


@every_model
def test_a_fit_converges_and_says_so(kind: Any) -> None:
    model = kind(2, tol=1e-5, max_iter=5000).fit(LOG)

    assert model.converged_
    assert model.objective_ == model.history_[-1]
    assert model.n_iter_ == len(model.history_) - 1


@every_model
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_threads_are_not_seen_in_the_result(
    kind: Any, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("unskew.factorization.objective.CELLS_PER_TASK", 20)
    monkeypatch.setattr("unskew.models.exposure.MIN_ROWS", 5)
    fits = [kind(3, max_iter=6, dtype=dtype, n_threads=n).fit(LOG) for n in (1, 2, 3)]

    for other in fits[1:]:
        assert other.history_ == fits[0].history_
        assert np.array_equal(other.factors_.user_factors, fits[0].factors_.user_factors)
        assert np.array_equal(other.factors_.item_factors, fits[0].factors_.item_factors)
    assert fits[0].factors_.user_factors.dtype == dtype


@every_model
def test_float32_agrees_with_float64(kind: Any) -> None:
    one, other = (
        kind(3, max_iter=30, tol=0.0, dtype=dtype).fit(LOG) for dtype in ("float32", "float64")
    )

    assert one.objective_ == pytest.approx(other.objective_, rel=1e-3)
    np.testing.assert_allclose(predict_matrix(one), predict_matrix(other), atol=0.02)


@every_model
def test_a_checkpoint_goes_on_to_the_same_bits(kind: Any, tmp_path: Path) -> None:
    def fit(max_iter: int, checkpoint: Path | None) -> AllCellsRecommender:
        fitted: AllCellsRecommender = kind(3, tol=0.0, max_iter=max_iter).fit(
            LOG, checkpoint=checkpoint, checkpoint_every=4
        )
        return fitted

    fit(9, tmp_path / "run")

    resumed, straight = fit(20, tmp_path / "run"), fit(20, None)

    assert resumed.history_ == straight.history_
    assert np.array_equal(predict_matrix(resumed), predict_matrix(straight))
    with pytest.raises(UsageError, match="belongs to another log, other weights or other settings"):
        kind(3, random_state=8).fit(LOG, checkpoint=tmp_path / "run")


@every_model
def test_a_saved_model_is_the_same(kind: Any, tmp_path: Path) -> None:
    model = kind(3, max_iter=5).fit(LOG)
    model.save(tmp_path / "model")

    read = read_model(tmp_path / "model", {kind.__name__: kind})

    assert isinstance(read, kind)
    assert read.get_params() == model.get_params()
    assert np.array_equal(
        read.predict(LOG.users[LOG.user], LOG.items[LOG.item]), model.predict(LOG.user, LOG.item)
    )
    assert np.array_equal(read.recommend([1, 2], k=3).items, model.recommend([1, 2], k=3).items)
    assert read.history_ == model.history_


@every_model
def test_scikit_learn_can_clone_it(kind: Any) -> None:
    copy = clone(kind(7, 2.0, max_iter=3).fit(LOG))

    assert repr(copy) == f"{kind.__name__}(n_factors=7, {PENALTIES[kind]}=2.0, max_iter=3)"
    with pytest.raises(NotFittedError, match="is not fitted yet"):
        copy.predict([1], [1])


@every_model
def test_users_and_items_without_a_rating_and_unknown_ones_get_the_fallback(kind: Any) -> None:
    model = kind(3, tol=1e-5).fit(LOG)
    fallback = getattr(model, "missing_rating", 0.0)

    assert model.predict(
        [0, 3, -7, 3, -7], [3, 29, 3, -7, -7], on_unknown="fallback"
    ) == pytest.approx([fallback] * 5, abs=1e-10)
    assert np.isnan(model.predict([-7], [3], on_unknown="nan")[0])
    with pytest.raises(UnknownIdError, match="1 of 1 users were not in the log"):
        model.predict([-7], [3], on_unknown="raise")


@every_model
def test_recommendations_are_the_best_items_that_the_log_does_not_have(kind: Any) -> None:
    model = kind(3, max_iter=20).fit(LOG)
    scores = predict_matrix(model)
    scores[LOG.user, LOG.item] = -np.inf

    found = model.recommend(np.arange(1, 6), k=7)

    np.testing.assert_allclose(found.scores, -np.sort(-scores[1:6], axis=1)[:, :7], rtol=1e-12)
    assert model.recommend([-7], k=3, on_unknown="fallback").items.shape == (1, 3)


@every_model
@pytest.mark.parametrize("shape", [(1, 12), (12, 1), (1, 1), (2, 2)])
def test_tiny_logs_are_fitted(kind: Any, shape: tuple[int, int]) -> None:
    log = Ratings.from_dense(
        np.where(np.arange(shape[0] * shape[1]).reshape(shape) % 3 < 2, 4.0, 0.0)
    )

    model = kind(2, tol=1e-5, max_iter=300).fit(log)

    assert np.isfinite(predict_matrix(model)).all()
    assert np.isfinite(model.objective_)
    assert all(
        later <= earlier + 1e-9 * abs(earlier) for earlier, later in pairwise(model.history_)
    )


@every_model
def test_constant_ratings_and_full_matrices_are_fitted(kind: Any) -> None:
    full = Ratings.from_dense(np.full((8, 6), 3.0))

    model = kind(2, tol=1e-5, max_iter=500).fit(full)

    assert np.isfinite(model.objective_)
    assert np.ptp(predict_matrix(model)) == pytest.approx(0, abs=1e-2)


@every_model
def test_more_factors_than_users_or_items_are_fine(kind: Any) -> None:
    model = kind(50, max_iter=4, tol=0.0).fit(some_log(6, 5, 0.6))

    assert np.isfinite(predict_matrix(model)).all()


@every_model
def test_a_warm_start_goes_on(kind: Any) -> None:
    cold = kind(3, tol=1e-9, max_iter=600).fit(LOG)

    warm = kind(3, tol=1e-9, max_iter=600).fit(LOG, initial_factors=cold.factors_)

    assert warm.objective_ <= cold.objective_ + 1e-6 * abs(cold.objective_)
    if kind is not ExposureFactorization:  # whose exposure starts anew
        assert warm.n_iter_ <= 5
    with pytest.raises(
        UsageError,
        match=r"initial_factors has .* \(40, 30, 3\), but the fit has \(40, 30, 4\)",
    ):
        kind(4).fit(LOG, initial_factors=cold.factors_)


@every_model
def test_offsets_of_a_warm_start_that_the_model_has_not_are_dropped(kind: Any) -> None:
    from_another = MatrixFactorization(3, 5.0).fit(LOG).factors_

    model = kind(3, max_iter=2).fit(LOG, initial_factors=from_another)

    assert from_another.global_offset > 1
    assert model.factors_.global_offset == getattr(model, "missing_rating", 0.0)
    assert not model.factors_.item_offset.any()
    assert not model.factors_.user_offset.any()


@every_model
def test_the_same_seed_is_the_same_fit_and_another_is_another(kind: Any) -> None:
    one, same, other = (kind(3, max_iter=3, random_state=seed).fit(LOG) for seed in (1, 1, 2))

    assert one.history_ == same.history_
    assert one.history_ != other.history_


@pytest.mark.parametrize("kind", [AllRank, WeightedFactorization, RelevanceFactorization])
def test_propensities_matter_and_are_checked(kind: Any) -> None:
    propensities = np.random.default_rng(0).uniform(0.2, 1, len(LOG))

    plain, weighted = kind(3, max_iter=5).fit(LOG), kind(3, max_iter=5).fit(LOG, propensities)

    assert weighted.objective_ != plain.objective_
    with pytest.raises(BadPropensityError, match="got propensities of shape"):
        kind(3).fit(LOG, propensities[:-1])


@pytest.mark.parametrize(
    ("kind", "settings", "match"),
    [
        *(
            (kind, {"n_factors": 0}, "n_factors must be a whole number, at least 1")
            for kind in MODELS
        ),
        *(
            (kind, {"max_iter": 0}, "max_iter must be a whole number, at least 1")
            for kind in MODELS
        ),
        *((kind, {"dtype": "float16"}, "unknown value 'float16' of dtype") for kind in MODELS),
        *(
            (
                kind,
                {PENALTIES[kind]: -1.0},
                r"must be a finite number, (at least|above) 0; got -1\.0",
            )
            for kind in MODELS
        ),
        *(
            (kind, {PENALTIES[kind]: "much"}, "must be a finite number, .* 0; got 'much'")
            for kind in MODELS
        ),
        (
            AllRank,
            {"missing_weight": 1.0},
            "missing_weight must be a finite number, at least 0 and below 1",
        ),
        (AllRank, {"missing_weight": -0.1}, "missing_weight must be a finite number, at least 0"),
        (
            AllRank,
            {"missing_rating": np.nan},
            "missing_rating must be a finite number; got nan",
        ),
        (
            WeightedFactorization,
            {"alpha": 0.0},
            r"alpha must be a finite number, above 0; got 0\.0",
        ),
        (WeightedFactorization, {"unit": np.inf}, "unit must be a finite number"),
        (
            WeightedFactorization,
            {"confidence": "square"},
            "unknown value 'square' of confidence; valid values are: linear, log",
        ),
        (
            ExposureFactorization,
            {"prior_precision": 0.0},
            "prior_precision must be a finite number, above 0",
        ),
        (
            ExposureFactorization,
            {"exposure": 1.0},
            "exposure must be a finite number, above 0 and below 1",
        ),
        (
            ExposureFactorization,
            {"prior": (0.5, 1.0)},
            r"prior must be a finite number, at least 1; got 0\.5",
        ),
        (
            ExposureFactorization,
            {"prior": 2.0},
            r"prior must be the two numbers a and b, each at least 1; got 2\.0",
        ),
        (
            ExposureFactorization,
            {"precision": np.nan},
            "precision must be a finite number, above 0; got nan",
        ),
        (RelevanceFactorization, {"power": -1.0}, "power must be a finite number, at least 0"),
        (
            ExposureFactorization,
            {"relevance_threshold": 6.0},
            "no rating reaches relevance_threshold=6; the highest is 5. Lower it",
        ),
        (
            RelevanceFactorization,
            {"relevance_threshold": "high"},
            "relevance_threshold must be the lowest rating that counts as a click",
        ),
        (
            RelevanceFactorization,
            {"floor": 0.0},
            "floor must be a finite number, above 0 and at most 1",
        ),
        (RelevanceFactorization, {"offsets": "some"}, "unknown value 'some' of offsets"),
    ],
)
def test_settings_out_of_range_are_refused(kind: Any, settings: dict[str, Any], match: str) -> None:
    with pytest.raises(UsageError, match=match):
        kind(**settings).fit(LOG)


@pytest.mark.parametrize("kind", [RelevanceFactorization, ExposureFactorization])
def test_a_rating_of_zero_is_no_click(kind: Any) -> None:
    log = Ratings.from_arrays([0, 0, 1], [0, 1, 1], [1, 0, 1])

    with pytest.raises(UsageError, match=r"the rating at row 1 .* is 0, which is not a click"):
        kind(1).fit(log)
