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
from unskew.factorization import initialization
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
