"""One objective, one start, every engine: the same optimum."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import unskew
from unskew.data.factors import Factors
from unskew.data.ratings import Ratings
from unskew.errors import MissingExtraError, UnskewError, UsageError
from unskew.factorization import initialization
from unskew.models import RECOMMENDERS
from unskew.models.matrix_factorization import MatrixFactorization

pytestmark = pytest.mark.filterwarnings(
    "ignore::FutureWarning:pyspark",
    "ignore::ResourceWarning",
    "ignore::unskew.errors.ConvergenceWarning",
)

WORLD = unskew.simulate(60, 45, density=0.15, alpha=0.4, random_state=2)
LOG = Ratings.from_arrays(WORLD.log.user, WORLD.log.item, WORLD.log.rating)
P = np.asarray(WORLD.propensities)
Fitted = Callable[[MatrixFactorization, Factors], MatrixFactorization]


def here(model: MatrixFactorization, begin: Factors) -> MatrixFactorization:
    return model.fit(LOG, P, initial_factors=begin)


@pytest.fixture(params=["local", "gpu", "spark"])
def fit(request: pytest.FixtureRequest) -> Fitted:
    """Fits by an engine: the GPU's code on the processors, Spark in two threads and two blocks."""
    if request.param == "local":
        return here
    if request.param == "gpu":
        pytest.importorskip("torch", reason="torch is not installed: pip install 'unskew[gpu]'")
        from unskew.engines import GpuEngine

        return lambda model, begin: model.fit(
            LOG, P, initial_factors=begin, engine=GpuEngine("cpu")
        )
    session: Any = request.getfixturevalue("spark")
    from unskew.engines import SparkEngine

    columns = {
        "user_id": LOG.users[LOG.user],
        "item_id": LOG.items[LOG.item],
        "rating": LOG.rating,
        "propensity": P,
    }
    frame = session.createDataFrame(pa.table(columns))
    return lambda model, begin: model.fit(
        frame, "propensity", initial_factors=begin, engine=SparkEngine(n_blocks=2)
    )


@pytest.mark.parametrize("offsets", ["none", "free", "regularized"])
def test_every_engine_reaches_the_same_optimum_from_the_same_start(
    fit: Fitted, offsets: Any
) -> None:
    settings: dict[str, Any] = {
        "n_factors": 3,
        "l2": 5.0,
        "offsets": offsets,
        "tol": 1e-10,
        "max_iter": 2000,
    }
    begin = initialization.small_random(
        (LOG.n_users, LOG.n_items), 3.0, n_factors=3, has_offsets=offsets != "none", random_state=0
    )
    expected = here(MatrixFactorization(**settings | {"tol": 1e-12}), begin)
    fitted = fit(MatrixFactorization(**settings), begin)

    assert fitted.objective_ == pytest.approx(expected.objective_, rel=1e-5)
    pairs = np.repeat(LOG.users, LOG.n_items), np.tile(LOG.items, LOG.n_users)
    np.testing.assert_allclose(fitted.predict(*pairs), expected.predict(*pairs), atol=1e-3)
    assert fitted.converged_
    assert (
        fitted.recommend(LOG.users, k=3).items.tolist()
        == expected.recommend(LOG.users, k=3).items.tolist()
    )


FITTED_BY = {
    "disk": {"mf"},
    "gpu": {"mf", "doubly-robust", "logistic", "relmf", "wmf"},
    "spark": {"mf", "doubly-robust"},
}
"""The recommenders that each engine fits. The command line is tested in tests/workflows."""


@pytest.mark.parametrize("engine", FITTED_BY)
@pytest.mark.parametrize("name", RECOMMENDERS)
def test_an_engine_fits_a_recommender_or_names_it_and_says_what_to_do(
    name: str, engine: str
) -> None:
    """The log is of the wrong kind, so those that could be fitted end in another error."""
    model = RECOMMENDERS.find(name).target()
    with pytest.raises(UnskewError) as raised:
        model.fit("a log", "propensity", engine=engine)

    refusal = f"{type(model).__name__} cannot be fitted by engine='{engine}'. Use engine="
    if not isinstance(raised.value, MissingExtraError):
        assert (refusal in str(raised.value)) == (name not in FITTED_BY[engine])


@pytest.mark.parametrize("engine", ["auto", "local", None])
@pytest.mark.parametrize("name", RECOMMENDERS)
def test_every_recommender_is_fitted_in_this_process(name: str, engine: str | None) -> None:
    """None is no argument: the default is the same."""
    model, options = RECOMMENDERS.find(name).target(), {"engine": engine} if engine else {}

    with pytest.raises(UsageError, match=r"the log must be unskew\.Ratings, not list"):
        model.fit([1, 2], **options)
