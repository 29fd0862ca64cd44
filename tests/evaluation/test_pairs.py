"""All pairs of models at once."""

from __future__ import annotations

import numpy as np
import pytest

import unskew
from unskew.errors import UsageError


@pytest.fixture(scope="module")
def result():
    world = unskew.simulate(n_users=80, n_items=60, density=0.2, alpha=0.5, random_state=0)
    noise = np.random.default_rng(0).normal(size=world.truth.shape)
    models = {
        "bad": world.truth + 2 * noise,
        "good": world.truth + 0.5 * noise,
        "also good": world.truth - 0.5 * noise,
    }
    return unskew.evaluate(world.log, models, propensities=world.propensities)


def test_pairs_are_adjusted_for_their_number(result) -> None:
    table = result.compare_all()
    assert (table.metric, table.estimator) == ("mse", "snips")
    plain = [each.p_value for each in table.pairs]
    np.testing.assert_allclose(sorted(each.p_adjusted for each in table.pairs)[-1], max(plain))
    assert min(each.p_adjusted for each in table.pairs) == pytest.approx(3 * min(plain))
    assert table.models[-1] == "bad"


def test_ties_with_the_best_are_named(result) -> None:
    table = result.compare_all(metric="mae")
    assert set(table.best) == {"good", "also good"}
    assert "not told apart from it" in repr(table)
    assert "None" not in repr(table)
    assert "not told apart" in table.to_frame("pandas")["better"].tolist()


def test_propensities_without_ratings_name_no_best_model() -> None:
    world = unskew.simulate(n_users=80, n_items=60, density=0.2, alpha=0.5, random_state=0)
    fitted = unskew.propensity.PopularityPropensity("both").fit(world.log)
    models = {"near": world.truth + 0.5, "far": world.truth + 1.0}
    result = unskew.evaluate(world.log, models, propensities=fitted, estimators=["snips"])

    assert (
        result.compare_all()
        .describe()
        .startswith(
            "ahead on mse by snips: near; adjusted for users and items only: if people rate what "
            "they like, the order can also be another one\n"
        )
    )


def test_a_pair_has_defaults(result) -> None:
    assert result.compare("bad", "good") == result.compare(
        "bad", "good", metric="mse", estimator="snips"
    )


def test_one_model_has_no_pairs() -> None:
    log = unskew.Ratings.from_dense([[1, 2], [3, 0]])
    result = unskew.evaluate(log, np.ones((2, 2)), propensities=np.full(3, 0.5))
    with pytest.raises(UsageError, match="only one model"):
        result.compare_all()


def test_page(result, tmp_path) -> None:
    page = result.compare_all().to_html(tmp_path / "pairs.html").read_text()
    assert "cannot be told apart from it" in page


def test_without_a_universe_snips_answers_and_ips_is_left_out() -> None:
    log = unskew.Ratings.from_arrays([0, 0, 1], [0, 1, 1], [1, 2, 3])
    result = unskew.evaluate(log, {"m": np.ones(3)}, propensities=[0.5, 0.2, 0.1])
    assert result.estimators == ("naive", "snips")
    assert "ips is left out" in repr(result)


def test_a_fitted_model_remembers_the_universe() -> None:
    log = unskew.Ratings.from_arrays([0, 0, 1], [0, 1, 1], [1, 2, 3])
    model = unskew.propensity.UniformPropensity().fit(log, universe=(4, 5))
    result = unskew.evaluate(log, {"m": np.ones(3)}, propensities=model)
    assert (result.universe.n_users, result.universe.n_items) == (4, 5)
    assert "ips" in result.estimators


@pytest.mark.filterwarnings("ignore::unskew.errors.PropensityWarning")
def test_without_intervals_no_model_is_best() -> None:
    cells = np.repeat([0, 1, 2], 30), np.tile(np.arange(30), 3)
    log = unskew.Ratings.from_codes(*cells, np.ones(90), shape=(3, 30))
    models = {"up": np.tile(np.arange(30.0), (3, 1)), "down": np.tile(-np.arange(30.0), (3, 1))}
    result = unskew.evaluate(
        log, models, propensities=np.full(90, 0.01), metrics=["mrr"], estimators=["snips"],
        universe="log",
    )  # fmt: skip

    assert "no model is best on mrr by snips: the differences have no interval" in repr(
        result.compare_all()
    )
