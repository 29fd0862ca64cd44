"""The names that users and outside checks rely on."""

from __future__ import annotations

import subprocess
import sys

import pytest

import unskew

PROMISED = """
    Ratings Propensities Universe Factors Evaluation Comparison Simulation Observation ByRating ByCovariates Uniform
    Diagnosis diagnose Robustness Sensitivity sensitivity Clip Switch Shrink SubGaussian MatrixFactorization GlobalMean
    MultinomialMixture AllRank WeightedFactorization ExposureFactorization RelevanceFactorization
    OffsetsOnly Popularity Recommendations CrossValidation evaluate evaluate_frame
    GroupedEvaluation cross_validate simulate load load_coat load_movielens_100k load_yahoo_r3
    load_cm100k load_jester theory errors UniformPropensity PopularityPropensity NaiveBayesPropensity OneBitPropensity
    PoissonPropensity LogisticPropensity ClassifierPropensity BoostedPropensity ClippedPropensity ScaledPropensity
    CalibratedPropensity CrossFittedPropensity inverse_weights OrdinalFactorization
    GpuEngine SparkEngine
    DoublyRobustFactorization EIB TDR DRV2 IPSV2 StableDR TriTraining LogisticFactorization
    Dynamic compare_learners Learner LearnerComparison ranking_on_test
    UnskewError UnskewWarning PropensityWarning __version__
""".split()


def test_every_promised_name_is_there_and_no_other() -> None:
    assert sorted(unskew.__all__) == sorted(PROMISED)
    for name in PROMISED:
        assert getattr(unskew, name) is not None


def test_names_know_their_home() -> None:
    for name, home in unskew._HOMES.items():
        thing = getattr(unskew, name)
        assert thing.__module__ == home


def test_dir_lists_them() -> None:
    assert set(PROMISED) <= set(dir(unskew))


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'evalute'"):
        _ = unskew.evalute


def test_theory_has_the_papers_bounds() -> None:
    assert {"tail_bound", "ips_bias", "erm_bound", "erm_bound_estimated"} <= set(dir(unskew.theory))


@pytest.mark.parametrize(
    "heavy",
    ["numba", "sklearn", "scipy", "matplotlib", "pandas", "polars", "pyarrow", "click", "rich"],
)
def test_import_loads_nothing_heavy(heavy: str) -> None:
    code = f"import sys, unskew; unskew.Ratings, unskew.errors; print({heavy!r} in sys.modules)"

    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout

    assert answer.strip() == "False"
