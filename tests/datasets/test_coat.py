from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from unskew.data.universe import Universe
from unskew.datasets.coat import COAT, Coat, load_coat
from unskew.errors import DatasetFormatError, DatasetNotFoundError

Write = Callable[..., Path]

FILES = {
    "train.ascii": "5 0 0 1\n0 0 3 0\n2 0 0 0\n",
    "test.ascii": "5 2 0 0\n0 0 0 4\n0 1 0 0\n",
    "propensities.ascii": "5e-01 1e-01 .1 0.25\n0.1 0.1 0.2 0.1\n1 0.1 0.1 0.1\n",
    "user_item_features/user_features.ascii": "1 0\n0 1\n1 0\n",
    "user_item_features/user_features_map.txt": "gender:men\ngender:women",
    "user_item_features/item_features.ascii": "1 0 0\n0 1 0\n0 0 1\n1 0 0\n",
    "user_item_features/item_features_map.txt": "color:beige\ncolor:black\njackettype:pea",
}


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_the_files_are_read(write: Write, newline: str) -> None:
    coat = load_coat(write(FILES, newline=newline))

    assert coat.train.universe == coat.test.universe == Universe(3, 4)
    assert list(zip(coat.train.user, coat.train.item, coat.train.rating, strict=True)) == [
        (0, 0, 5),
        (0, 3, 1),
        (1, 2, 3),
        (2, 0, 2),
    ]
    assert coat.test.rating.tolist() == [5, 2, 4, 1]
    assert coat.propensities.values.tolist() == [0.5, 0.25, 0.2, 1]
    assert coat.propensity_matrix.shape == (3, 4)
    assert coat.user_features.tolist() == [[1, 0], [0, 1], [1, 0]]
    assert coat.item_features.shape == (4, 3)
    assert coat.user_feature_names == ("gender:men", "gender:women")
    assert coat.item_feature_names == ("color:beige", "color:black", "jackettype:pea")


def test_cells_of_the_test_that_are_in_train_are_marked(write: Write) -> None:
    assert load_coat(write(FILES)).overlap.tolist() == [True, False, False, False]


def test_line_ends_do_not_change_the_digest_and_values_do(write: Write) -> None:
    unix = load_coat(write(FILES, folder="unix")).digest
    windows = load_coat(write(FILES, folder="windows", newline="\r\n")).digest
    other = load_coat(
        write(FILES | {"test.ascii": "5 3 0 0\n0 0 0 4\n0 1 0 0\n"}, folder="other")
    ).digest

    assert unix == windows != other


def test_the_sub_folder_of_the_environment_variable_is_read(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UNSKEW_DATA", str(write(FILES, folder="all/coat").parent))

    assert len(load_coat().train) == 4


def test_a_download_is_taken_when_it_has_the_pinned_digest(
    write: Write, serve: Callable[[dict[str, str]], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert COAT.archive is not None
    digest = load_coat(write(FILES)).digest
    monkeypatch.delenv("UNSKEW_DATA", raising=False)
    serve({f"coat/{name}": text for name, text in FILES.items()})

    with pytest.raises(
        DatasetFormatError,
        match=rf"coat\.zip is not Coat Shopping as published.* SHA-256 {digest}, expected",
    ):
        load_coat()
    monkeypatch.setattr(
        "unskew.datasets.coat.COAT", replace(COAT, archive=replace(COAT.archive, digest=digest))
    )
    assert load_coat().digest == digest


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        (
            "train.ascii",
            "5 0 0 1\n0 0 6 0\n2 0 0 0\n",
            r"train\.ascii, line 2, column '3': found '6', expected a rating from 1 to 5",
        ),
        (
            "test.ascii",
            "5 2 0 0\n0 0 0 4.5\n0 1 0 0\n",
            r"test\.ascii, line 2, column '4': found '4\.5', expected a rating",
        ),
        (
            "test.ascii",
            "5 2 0\n0 0 0\n0 1 0\n",
            r"test\.ascii, line 1: found 3 fields .* expected 4",
        ),
        ("test.ascii", "5 2 0 0\n", r"test\.ascii: found 1 lines, expected 3"),
        (
            "propensities.ascii",
            "1 1 1 1\n1 1 0 1\n1 1 1 1\n",
            r"line 2, column '3': found '0', expected a propensity in \(0, 1\]",
        ),
        (
            "user_item_features/user_features.ascii",
            "1 0\n0 1\n",
            r"user_features\.ascii: found 2 lines, expected 3",
        ),
        (
            "user_item_features/user_features_map.txt",
            "men",
            r"user_features_map\.txt: found 1 names, expected 2, one for each",
        ),
    ],
)
def test_a_malformed_file_is_located(write: Write, name: str, text: str, message: str) -> None:
    with pytest.raises(DatasetFormatError, match=message):
        load_coat(write(FILES | {name: text}))


def test_a_missing_file_is_named_with_the_page_that_has_it(write: Write) -> None:
    folder = write({name: text for name, text in FILES.items() if name != "propensities.ascii"})

    with pytest.raises(
        DatasetNotFoundError, match=r"given: lacks propensities\.ascii\n[\s\S]*schnabts/mnar"
    ):
        load_coat(folder)


@pytest.fixture(scope="module")
def coat(real: Callable[[Callable[[str], Coat]], Coat]) -> Coat:
    return real(load_coat)


def test_the_real_logs_have_the_published_counts(coat: Coat) -> None:
    assert coat.train.universe == coat.test.universe == Universe(290, 300)
    assert np.bincount(coat.train.rating.astype(int)).tolist() == [0, 1901, 1437, 1717, 1275, 630]
    assert np.bincount(coat.test.rating.astype(int)).tolist() == [0, 1879, 899, 1002, 641, 219]
    assert set(np.bincount(coat.train.user).tolist()) == {24}
    assert set(np.bincount(coat.test.user).tolist()) == {16}
    per_item = np.bincount(coat.train.item, minlength=300)
    assert (per_item.min(), per_item.max()) == (5, 88)


def test_the_real_overlap_is_366_cells_with_equal_ratings(coat: Coat) -> None:
    dense = np.zeros((290, 300))
    dense[coat.train.user, coat.train.item] = coat.train.rating
    both = coat.test.take(coat.overlap)

    assert len(both) == 366
    np.testing.assert_array_equal(dense[both.user, both.item], both.rating)


def test_the_real_test_has_the_known_floors(coat: Coat) -> None:
    error = coat.test.rating - coat.train.rating.mean()

    assert np.mean(error**2) == pytest.approx(1.692, abs=5e-4)
    assert np.mean(np.abs(error)) == pytest.approx(1.160, abs=5e-4)
    assert np.mean(error[~coat.overlap] ** 2) == pytest.approx(1.702, abs=5e-4)


def test_the_real_propensities_are_the_published_ones(coat: Coat) -> None:
    matrix, weight = coat.propensity_matrix, coat.propensities.inverse

    assert (matrix.min(), matrix.max()) == (
        pytest.approx(0.00253, abs=5e-6),
        pytest.approx(0.690, abs=5e-4),
    )
    assert matrix.sum() == pytest.approx(6961.6, abs=0.05)
    assert weight.sum() == pytest.approx(90486, abs=0.5)
    assert weight.max() == pytest.approx(245, abs=0.5)
    assert weight.sum() ** 2 / (weight**2).sum() == pytest.approx(2211, abs=0.5)
    assert weight @ coat.train.rating / coat.train.n_cells == pytest.approx(2.424, abs=5e-4)
    assert weight @ coat.train.rating / weight.sum() == pytest.approx(2.331, abs=5e-4)


def test_the_real_covariates_are_one_hot_in_each_group(coat: Coat) -> None:
    assert coat.user_features.shape == (290, 14)
    assert coat.item_features.shape == (300, 33)
    for features, names in (
        (coat.user_features, coat.user_feature_names),
        (coat.item_features, coat.item_feature_names),
    ):
        groups = [name.split(":")[0] for name in names]
        for group in set(groups):
            members = [column for column, name in enumerate(groups) if name == group]
            assert (features[:, members].sum(axis=1) == 1).all()


def test_the_real_content_has_the_pinned_digest(coat: Coat) -> None:
    assert COAT.archive is not None
    assert coat.digest == COAT.archive.digest
