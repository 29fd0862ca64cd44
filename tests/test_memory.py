"""Work that needs more memory than the limit is refused, with the number and a remedy."""

from __future__ import annotations

import numpy as np
import pytest

import unskew
from unskew.errors import MemoryLimitError, UsageError
from unskew.memory import VARIABLE, find_limit, parse_bytes, require_memory
from unskew.propensity import PoissonPropensity


@pytest.fixture(scope="module")
def log() -> unskew.Ratings:
    return unskew.simulate(20, 10, density=0.1, random_state=0).log


@pytest.mark.parametrize(
    "model",
    [unskew.MatrixFactorization(10**9), PoissonPropensity(10**9)],
    ids=lambda model: type(model).__name__,
)
def test_a_fit_with_too_many_factors_is_refused(model: object, log: unskew.Ratings) -> None:
    arguments = {} if isinstance(model, unskew.MatrixFactorization) else {"universe": "log"}

    with pytest.raises(MemoryLimitError, match=r"1,000,000,000 factors would need about .* GB"):
        model.fit(log, **arguments)  # type: ignore[attr-defined]


def test_a_log_of_a_huge_matrix_is_refused() -> None:
    with pytest.raises(MemoryLimitError, match=r"set \$UNSKEW_MEMORY_LIMIT, for example to"):
        unskew.Ratings.from_codes([0], [0], [1.0], shape=(2**50, 5))


def test_a_bootstrap_of_a_huge_universe_is_refused(log: unskew.Ratings) -> None:
    with pytest.raises(MemoryLimitError, match="10 resamples of 1,125,899,906,842,624 clusters"):
        unskew.evaluate(
            log,
            np.full(len(log), 3.0),
            propensities=np.full(len(log), 0.5),
            universe=(2**50, 10),
            bootstrap=10,
        )


def test_a_huge_simulation_is_refused() -> None:
    with pytest.raises(MemoryLimitError, match="all ratings of 10,000,000 users x 10,000,000"):
        unskew.simulate(10**7, 10**7)


def test_the_variable_sets_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "100MB")

    with pytest.raises(MemoryLimitError, match=r"200 MB .* limit of 100 MB \(\$UNSKEW"):
        require_memory(2e8, "this", parameter="k", remedy="Use less.")
    require_memory(9e7, "this", parameter="k", remedy="Use less.")
    monkeypatch.setenv(VARIABLE, "none")
    require_memory(1e18, "this", parameter="k", remedy="Use less.")


@pytest.mark.parametrize(
    ("text", "size"), [("8GB", 8e9), ("1.5 tb", 1.5e12), ("10M", 1e7), ("12", 12.0), ("none", None)]
)
def test_sizes_are_read(text: str, size: float | None) -> None:
    assert parse_bytes(text) == size


def test_another_text_is_refused() -> None:
    with pytest.raises(UsageError, match=r"must be a size such as 8GB, or none; got 'much'"):
        parse_bytes("much")


def test_the_default_limit_is_that_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)

    limit, source = find_limit()

    assert limit is not None
    assert limit > 1e8
    assert source in ("of the machine", "of the container")
