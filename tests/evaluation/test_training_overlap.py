"""Models that were fitted to cells of the test are named, with the number of these cells."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import unskew
from unskew import MatrixFactorization, Ratings, evaluate_random_test
from unskew.errors import UnskewWarning
from unskew.evaluation.training_overlap import TrainingOverlap
from unskew.models import Popularity

WORLD = unskew.simulate(40, 30, density=0.25, alpha=0.5, random_state=0)
LOG = WORLD.log
N = len(LOG)
TRAIN, TEST = unskew.split(LOG, share=0.3, random_state=0)
MF = MatrixFactorization(1, 5.0).fit(TRAIN)


def rename(log: Ratings) -> Ratings:
    """The same cells, with other codes: the ids are in the reverse order."""
    return Ratings.from_arrays(
        log.users[log.user][::-1],
        log.items[log.item][::-1],
        log.rating[::-1],
        users=log.users[::-1],
        items=log.items[::-1],
    )


def warned(call: Any, *arguments: Any, **options: Any) -> tuple[Any, list[str]]:
    """The result of a call, and its warnings about training, which point to this file."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = call(*arguments, **options)
    about = [each for each in caught if "trained on" in str(each.message)]
    assert all(each.category is UnskewWarning for each in about)
    assert all(each.filename == __file__ for each in about)
    return result, [str(each.message) for each in about]


def test_a_model_on_its_own_log_is_named_once_with_the_remedy(tmp_path: Path) -> None:
    n = len(TRAIN)
    models = {"mf": MF, "mean": np.full(n, 3.0)}
    result, (text,) = warned(unskew.evaluate, TRAIN, models, propensities=WORLD.propensities)

    assert text == (
        f"model 'mf' was trained on {n} of the {n} tested cells, so it looks better than it is. "
        "Hold ratings out: fit models to the first part of unskew.split(log), and evaluate them on "
        "the second."
    )
    assert result.training_overlap == TrainingOverlap(n, {"mf": n})
    assert text in result.to_record()["warnings"]
    assert repr(result).count(text) == 1
    assert result.to_html(tmp_path / "page.html").read_text().count("trained on") == 1
    varied, texts = warned(unskew.sensitivity, result)
    assert texts == []
    assert text.partition(". ")[0] in varied.notes


def test_cells_are_matched_by_ids() -> None:
    some = LOG.take(np.arange(0, N, 2))
    expected = np.isin(np.arange(0, N, 2), TRAIN.part.rows).sum()  # type: ignore[union-attr]
    result, (text,) = warned(unskew.evaluate, rename(some), MF, estimators=["naive"])

    assert result.training_overlap is not None
    assert result.training_overlap.n_seen == {"model": expected}
    assert f"{expected} of the {len(some)} tested cells" in text


def test_held_out_ratings_and_predictions_of_unknown_origin_are_not_in_question() -> None:
    models = {"mf": MF, "array": MF.predict(TEST.users[TEST.user], TEST.items[TEST.item])}
    result, texts = warned(unskew.evaluate, TEST, models, estimators=["naive"])

    assert texts == []
    assert result.training_overlap == TrainingOverlap(len(TEST), {})


def test_models_with_the_same_cells_share_a_warning() -> None:
    popular = Popularity().fit(LOG)
    models = {"a": MF, "popular": popular, "mf": MF}
    _, texts = warned(
        unskew.evaluate, LOG, models, estimators=["naive"], metrics=["dcg@3"], universe="log"
    )

    assert [text.partition(",")[0] for text in texts] == [
        f"models 'a' and 'mf' were trained on {len(TRAIN)} of the {N} tested cells",
        f"model 'popular' was trained on {N} of the {N} tested cells",
    ]


def test_a_random_test_is_too_easy_unless_the_training_log_is_excluded() -> None:
    test = LOG.take(np.r_[TEST.part.rows, TRAIN.part.rows[:7]])  # type: ignore[union-attr]
    test = Ratings.from_arrays(test.users[test.user], test.items[test.item], test.rating)
    _, (text,) = warned(evaluate_random_test, test, {"mf": MF})
    assert text.startswith(f"model 'mf' was trained on 7 of the {len(test)} tested cells")
    assert text.endswith("Pass the training log as exclude=...: its cells leave the test.")

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = evaluate_random_test(test, {"mf": MF}, exclude=TRAIN)
    assert result.n_observed == len(TEST)
    assert "7 logged cells left the test: not among the candidates (all in `exclude`)" in (
        result.notes
    )


def test_overlaps_of_groups_add_up() -> None:
    total = TrainingOverlap(5, {"a": 2}) + TrainingOverlap(7, {"a": 1, "b": 4})

    assert total == TrainingOverlap(12, {"a": 3, "b": 4})
    with pytest.raises(StopIteration):
        next(TrainingOverlap(5, {}).warnings())
