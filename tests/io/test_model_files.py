from __future__ import annotations

import hashlib
import io
import json
import os
import pickle
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import unskew
from unskew.data.ratings import Ratings
from unskew.errors import ModelFileError, NotFittedError, UnskewError, UsageError
from unskew.io.model_files import MANIFEST
from unskew.models.baselines import Popularity
from unskew.models.matrix_factorization import MatrixFactorization
from unskew.propensity import (
    BoostedPropensity,
    CalibratedPropensity,
    ClippedPropensity,
    CrossFittedPropensity,
    LogisticPropensity,
    NaiveBayesPropensity,
    PopularityPropensity,
    RakedPropensity,
    UniformPropensity,
)

pytestmark = pytest.mark.filterwarnings("ignore::unskew.errors.ConvergenceWarning")

Parts = dict[str, bytes]
IDS: dict[str, list[Any]] = {
    "int": [7, -2, 10**12],
    "large int": [1, 2**63, 2**70],
    "string": ["ann", "bøb", "cat\x00"],
    "bool": [True, False],
    "float": [0.5, 1e300, -3.0],
    "mixed": [1, "1", 2.5],
}


def small_log(users: list[Any], items: list[Any]) -> Ratings:
    pairs = [(user, item) for user in users for item in items][1:]
    return Ratings.from_arrays(
        [user for user, _ in pairs], [item for _, item in pairs], np.arange(len(pairs)) % 5 + 1
    )


LOG = small_log(["ann", "bob", "cat"], [1, 2, 3, 4])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    MatrixFactorization(2, 0.5).fit(LOG).save(tmp_path / "model")
    return tmp_path / "model"


def rewrite(path: Path, change: Callable[[Parts], None], *, signed: bool = True) -> None:
    """Change the entries of a model file; ``signed`` makes their digests right again."""
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    change(parts)
    if signed:
        manifest = json.loads(parts[MANIFEST])
        manifest["sha256"] = {
            name: hashlib.sha256(part).hexdigest()
            for name, part in parts.items()
            if name != MANIFEST
        }
        parts[MANIFEST] = json.dumps(manifest).encode()
    with zipfile.ZipFile(path, "w") as archive:
        for name, part in parts.items():
            archive.writestr(name, part)


def with_manifest(**changes: Any) -> Callable[[Parts], None]:
    """Change the manifest; ``model=...`` changes only the named entries of its model."""

    def change(parts: Parts) -> None:
        manifest = json.loads(parts[MANIFEST])
        parts[MANIFEST] = json.dumps(
            manifest | changes | {"model": manifest["model"] | changes.get("model", {})}
        ).encode()

    return change


def npy(array: Any, *, allow_pickle: bool = False) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=allow_pickle)
    return buffer.getvalue()


def with_part(name: str, content: bytes) -> Callable[[Parts], None]:
    return lambda parts: parts.update({name: content})


@pytest.mark.parametrize("users", IDS.values(), ids=IDS.keys())
@pytest.mark.parametrize("items", IDS.values(), ids=IDS.keys())
def test_ids_of_any_json_type_come_back(tmp_path: Path, users: list[Any], items: list[Any]) -> None:
    log = small_log(users, items)
    model = Popularity().fit(log)

    model.save(tmp_path / "model")
    back = unskew.load(tmp_path / "model")

    for own, other in ((model.users_, back.users_), (model.items_, back.items_)):
        assert own.tolist() == other.tolist()
        assert [type(value) for value in own.tolist()] == [type(value) for value in other.tolist()]
    pairs = log.users[log.user], log.items[log.item]
    assert back.predict(*pairs, on_unknown="raise").tolist() == model.predict(*pairs).tolist()
    assert (
        back.recommend(log.users, k=2).items.tolist()
        == model.recommend(log.users, k=2).items.tolist()
    )


@pytest.mark.parametrize("dtype", [np.int8, np.uint64, np.float32, np.bool_, np.str_])
def test_ids_of_numpy_types_are_found_again(tmp_path: Path, dtype: Any) -> None:
    users = np.array([0, 1]).astype(dtype)
    log = Ratings.from_arrays(users, [1, 2], [3.0, 4.0])

    Popularity().fit(log).save(tmp_path / "model")

    assert unskew.load(tmp_path / "model").predict(users, [1, 2], on_unknown="raise").tolist() == [
        1,
        1,
    ]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("offsets", ["none", "free", "regularized"])
def test_a_factorisation_comes_back_bit_for_bit(tmp_path: Path, offsets: Any, dtype: Any) -> None:
    model = MatrixFactorization(2, 0.5, offsets=offsets, dtype=dtype).fit(LOG)

    model.save(tmp_path / "model")
    back = unskew.load(tmp_path / "model")

    assert isinstance(back, MatrixFactorization)
    assert back.get_params() == model.get_params()
    for name in ("user_factors", "item_factors", "user_offset", "item_offset"):
        own, other = getattr(model.factors_, name), getattr(back.factors_, name)
        assert own.dtype == other.dtype
        assert np.array_equal(own, other)
    for name in ("fallback_", "objective_", "history_", "n_iter_", "converged_"):
        assert getattr(back, name) == getattr(model, name)


def test_numpy_numbers_as_settings_come_back_as_plain_ones(tmp_path: Path) -> None:
    settings: dict[str, Any] = {
        "l2": np.float32(0.5),
        "max_iter": np.int64(900),
        "verbose": np.bool_(False),
    }
    MatrixFactorization(2, **settings).fit(LOG).save(tmp_path / "model")

    assert (
        repr(unskew.load(tmp_path / "model"))
        == "MatrixFactorization(n_factors=2, l2=0.5, max_iter=900)"
    )


def test_what_cannot_be_saved_is_said(tmp_path: Path) -> None:
    with pytest.raises(
        UsageError,
        match=r"user ids must be numbers, strings or booleans to be saved; .* such as \(1, 2\)",
    ):
        Popularity().fit(small_log([(1, 2), (3, 4)], [1, 2])).save(tmp_path / "model")
    with pytest.raises(UsageError, match="item ids must be numbers, strings or booleans"):
        Popularity().fit(small_log([1, 2], [b"up", b"heat"])).save(tmp_path / "model")
    with pytest.raises(UsageError, match="random_state is a complex, which cannot be saved"):
        MatrixFactorization(2).fit(LOG).set_params(random_state=1j).save(tmp_path / "model")
    with pytest.raises(NotFittedError, match="is not fitted yet"):
        Popularity().save(tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match=r"there is no model file .*nowhere"):
        unskew.load(tmp_path / "nowhere")


@pytest.mark.parametrize(
    "content", [b"", b"user_id,item_id\n", pickle.dumps([1])], ids=["empty", "text", "pickle"]
)
def test_a_file_that_is_no_zip(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "model").write_bytes(content)

    with pytest.raises(ModelFileError, match=r"is not a model file\. Pass a file written by"):
        unskew.load(tmp_path / "model")


def test_a_folder_and_a_zip_of_something_else(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="not a complete model file"):
        unskew.load(tmp_path)
    with zipfile.ZipFile(tmp_path / "other.zip", "w") as archive:
        archive.writestr("README", "hello")
    with pytest.raises(ModelFileError, match=r"not a complete model file: .*manifest\.json"):
        unskew.load(tmp_path / "other.zip")


def test_a_file_cut_anywhere_is_refused(path: Path) -> None:
    whole = path.read_bytes()
    for length in range(0, len(whole) - 1, 97):
        path.write_bytes(whole[:length])
        with pytest.raises(ModelFileError, match=r"not a complete model file|not a model file"):
            unskew.load(path)


def test_a_byte_changed_anywhere_is_refused_or_changes_nothing(path: Path) -> None:
    whole, model = path.read_bytes(), unskew.load(path)
    pairs = LOG.users[LOG.user], LOG.items[LOG.item]
    n_refused = 0
    for place in range(0, len(whole), 13):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :])
        try:
            assert unskew.load(path).predict(*pairs).tolist() == model.predict(*pairs).tolist()
        except ModelFileError:
            n_refused += 1
    assert n_refused > len(whole) // 13 / 2


def test_arrays_that_were_exchanged_are_refused(path: Path) -> None:
    rewrite(path, with_part("factors_.user_offset", npy(np.ones(3))), signed=False)

    with pytest.raises(
        ModelFileError,
        match=r"factors_\.user_offset in .* is not what was saved: .* altered or damaged",
    ):
        unskew.load(path)


@pytest.mark.parametrize(
    "method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA], ids=str
)
def test_a_file_that_would_unpack_to_more_is_refused_before_it_is_read(
    path: Path, method: int
) -> None:
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    parts["factors_.user_offset"] = npy(np.zeros(1 << 21))
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, part in parts.items():
            archive.writestr(name, part)
    tracemalloc.start()
    with pytest.raises(ModelFileError, match=r"is compressed, to unpack to [\d,]+ bytes; files of"):
        unskew.load(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert peak < 1 << 20


def test_parts_that_claim_more_bytes_than_the_file_has(path: Path) -> None:
    content = bytearray(path.read_bytes())
    entry = content.rindex(b"PK\x01\x02")  # the last entry of the directory
    content[entry + 24 : entry + 28] = (1 << 31).to_bytes(4, "little")
    path.write_bytes(content)

    with pytest.raises(ModelFileError, match=r"its parts claim 2,147,[\d,]+ bytes, but it has"):
        unskew.load(path)


@pytest.mark.parametrize("size", [b"3000000000000", b"99999999999999999999", b"-2"])
def test_an_array_that_claims_to_be_huge(path: Path, size: bytes) -> None:
    shape = b"'shape': (3,), }" + b" " * 25
    header = npy(np.ones(3)).replace(shape, (b"'shape': (%b,), }" % size).ljust(len(shape)))
    assert size in header
    rewrite(path, with_part("factors_.user_offset", header))

    with pytest.raises(ModelFileError, match="not a complete model file"):
        unskew.load(path)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (
            with_manifest(format=2, written_by="unskew 9.0"),
            r"has format 2 \(unskew 9\.0\), and this version reads up to 1\. Upgrade",
        ),
        (
            with_manifest(model={"class": "Oracle"}),
            "holds a model of class 'Oracle', which is not known here. Upgrade unskew, or import",
        ),
        (
            with_manifest(model={"params": {"rank": {"value": 3}}}),
            "not a complete model file: .*'rank'",
        ),
        (
            with_manifest(model={"params": {"l2": {"code": "1"}}}),
            "holds a value that this version does not know: {'code': '1'}",
        ),
        (with_manifest(model={"state": 3}), "not a complete model file"),
        (
            with_manifest(model={"state": {"predict": {"value": "mine"}}}),
            "MatrixFactorization has no fitted attribute 'predict'",
        ),
        (
            with_manifest(
                model={"state": {"factors_": {"record": {"global_offset": {"value": 1}}}}}
            ),
            "not a complete model file",
        ),
        (
            with_manifest(model={"state": {"factors_": {"record": {"more": {"value": 1}}}}}),
            "not a complete model file",
        ),
        (with_part(MANIFEST, b"[]"), "not a complete model file"),
        (with_part(MANIFEST, b"[" * 100_000), "not a complete model file"),
        (with_part(MANIFEST, b"{"), "not a complete model file"),
    ],
    ids=[
        "newer",
        "class",
        "params",
        "kind",
        "state",
        "planted",
        "few",
        "more",
        "list",
        "deep",
        "cut",
    ],
)
def test_a_manifest_that_cannot_be_followed(
    path: Path, change: Callable[[Parts], None], match: str
) -> None:
    rewrite(path, change, signed=False)

    with pytest.raises(ModelFileError, match=match):
        unskew.load(path)


@pytest.mark.parametrize(
    ("name", "content", "match"),
    [
        (
            "factors_.user_offset",
            npy(np.ones(2)),
            r"user_offset has shape \(2,\); it must have shape \(3,\)",
        ),
        (
            "factors_.item_factors",
            npy(np.ones((4, 3))),
            r"users have 2 factors, but items have 3",
        ),
        (
            "seen_starts_",
            npy(np.arange(3)),
            r"seen_starts has shape \(3,\), but the rest of the model needs \(4,\)",
        ),
        ("seen_items_", npy(np.arange(3)), "seen_items has shape"),
        ("users_", b'["ann"]', "seen_starts has shape"),
        (
            "factors_.item_factors",
            npy(np.array([[1.0, 2.0], [3.0, np.nan], [np.nan, 1.0]])),
            r"item_factors has 2 missing numbers \(NaN\); the first is at \[1, 1\]",
        ),
        ("factors_.item_offset", npy(np.full(4, np.inf)), "numbers that are not finite"),
        ("factors_.item_factors", npy(np.full((4, 2), 1e308)), "whose squares are not finite"),
        ("items_", npy(np.ones((4, 2))), r"items has shape \(4, 2\)"),
        ("factors_.item_factors", npy(np.ones((4, 2), complex)), "has the type complex128"),
        ("factors_.item_factors", npy(np.full((4, 2), "x")), "has the type <U1"),
        ("factors_.item_factors", npy(np.ones((4, 2), ">f8")), "has the type >f8"),
        ("seen_starts_", npy(np.array([0, 5, 2, 11])), "seen_starts does not rise from 0"),
        ("seen_starts_", npy(np.array([0.0, 3, 7, 11])), "seen_starts_ is array.* not"),
        (
            "seen_items_",
            npy(np.full(11, 10**6)),
            "seen_items has other numbers than",
        ),
        ("seen_items_", npy(np.full(11, -1)), "seen_items has other numbers than"),
        ("users_", b"3", "not a complete model file"),
        ("users_", b'["ann", "bob", "ann"]', r"ids of users .*: they list 'ann' more than once"),
        ("users_", b'["ann", "bob", null]', "ids of users cannot be used: one of them is missing"),
        ("users_", b'["ann", "bob", NaN]', "ids of users cannot be used: one of them is missing"),
        ("users_", b'["ann", "bob", ["cat"]]', "one of them is neither text nor a number"),
        ("users_", b'["ann", "bob", {}]', "one of them is neither text nor a number"),
        ("items_", npy(np.array([1, 2, 2, 4])), r"ids of items .*: they list 2 more than once"),
    ],
)
def test_arrays_that_do_not_go_together(path: Path, name: str, content: bytes, match: str) -> None:
    rewrite(path, with_part(name, content))

    with pytest.raises(ModelFileError, match=match):
        unskew.load(path)


SPARSE = Ratings.from_arrays([1, 1, 2, 2, 3, 3], [1, 2, 2, 3, 4, 1], [1, 2, 3, 4, 5, 1])
"""3 users and 4 items; half of the cells are observed."""
PROPENSITY_MODELS = {
    "naive Bayes": lambda: NaiveBayesPropensity(smoothing=1),
    "popularity": lambda: PopularityPropensity("both", smoothing=1),
    "logistic": lambda: LogisticPropensity(ridge=1.0),
    "boosted": lambda: BoostedPropensity(max_trees=2, user_features=np.arange(3.0)[:, None]),
    "raked": lambda: RakedPropensity(PopularityPropensity("both", smoothing=1)),
    "clipped": lambda: ClippedPropensity(PopularityPropensity(), min_propensity=0.1),
    "cross-fitted": lambda: CrossFittedPropensity(UniformPropensity(), n_folds=2),
    "calibrated": lambda: CalibratedPropensity(PopularityPropensity(), n_folds=2),
}


@pytest.mark.filterwarnings("ignore::unskew.errors.UnskewWarning")
@pytest.mark.parametrize(
    ("model", "name", "content", "match"),
    [
        ("naive Bayes", "levels_", npy(np.arange(5.0)[None]), r"levels has shape \(1, 5\)"),
        ("naive Bayes", "cuts_", npy(np.zeros(2)), r"cuts has shape \(2,\)"),
        ("naive Bayes", "observed_by_level_", npy(np.ones(9)), "observed_by_level has shape"),
        ("naive Bayes", "observed_by_level_", npy(np.full(5, -1e308)), "counts of ratings"),
        ("popularity", "users_", npy(np.arange(3)[None]), r"users has shape \(1, 3\)"),
        ("popularity", "user_score_", npy(np.ones(3, np.float16)), "has the type float16"),
        ("popularity", "item_score_", npy(np.full(4, np.inf)), "numbers that are not finite"),
        ("logistic", "user_crossed_", npy(np.zeros((0, 0))), "user_crossed has shape"),
        ("logistic", "item_offset_", npy(np.zeros((1, 4))), "item_offset has shape"),
        ("logistic", "n_crossed_", npy(np.zeros(1, np.int32)), r"n_crossed has shape \(1,\)"),
        ("logistic", "n_crossed_", npy(np.zeros(2)), "n_crossed_ is array.* not"),
        ("logistic", "user_profile_", npy(np.full(3, -9, np.int32)), "a profile is missing"),
        ("boosted", "user_profile_", npy(np.arange(3.0)), "user_profile_ is array.* not"),
        ("boosted", "user_profile_", npy(np.full(3, -9, np.int32)), "a profile is missing"),
        ("raked", "user_factor_", npy(np.ones((1, 3))), "user_factor has shape"),
        ("clipped", "items_", npy(np.arange(2)), "it has 2 items, but the model inside has 4"),
        ("cross-fitted", "training_share_", npy(np.ones((1, 2))), "training_share has shape"),
        ("calibrated", "knots_.0", npy(np.ones((1, 2))), "a curve for each fold"),
    ],
)
def test_arrays_of_propensity_models_that_do_not_go_together(
    tmp_path: Path, model: str, name: str, content: bytes, match: str
) -> None:
    fitted: Any = PROPENSITY_MODELS[model]()
    with_sample = {"mcar": dict.fromkeys(range(1, 6), 0.2)} if model == "naive Bayes" else {}
    fitted.fit(SPARSE, universe="log", **with_sample).save(tmp_path / "p.unskew")
    rewrite(tmp_path / "p.unskew", with_part(name, content))

    with pytest.raises(ModelFileError, match=match):
        unskew.load(tmp_path / "p.unskew")


@pytest.mark.parametrize(
    "value", ["text", [5, 5], {"user": "text", "item": 1.0}, {"user": 1.0}], ids=repr
)
def test_the_largest_counts_of_a_popularity_model_are_checked(tmp_path: Path, value: Any) -> None:
    PopularityPropensity("both").fit(LOG, universe="log").save(tmp_path / "p.unskew")

    def change(parts: Parts) -> None:
        manifest = json.loads(parts[MANIFEST])
        manifest["model"]["state"]["largest_"] = {"value": value}
        parts[MANIFEST] = json.dumps(manifest).encode()

    rewrite(tmp_path / "p.unskew", change, signed=False)
    with pytest.raises(ModelFileError, match="largest"):
        unskew.load(tmp_path / "p.unskew")


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"params": {"n_factors": {"value": "evil"}}}, "n_factors must be a whole number"),
        ({"state": {"fallback_": {"value": "evil"}}}, "fallback_ is 'evil', not"),
        ({"state": {"fallback_": {"float": "nan"}}}, "fallback_ is nan, not"),
        ({"state": {"n_iter_": {"value": 1.5}}}, r"n_iter_ is 1\.5, not"),
        ({"state": {"converged_": {"value": 2}}}, "converged_ is 2, not"),
        (
            {"state": {"penalty_": {"class": "Penalty", "record": {"user_offset": {"value": {}}}}}},
            r"user_offset is \{\}, not",
        ),
        ({"state": {"users_": {"value": 2}}}, "users_ is 2, not"),
    ],
)
def test_values_of_another_type_are_refused(
    path: Path, changes: dict[str, Any], match: str
) -> None:
    def change(parts: Parts) -> None:
        manifest = json.loads(parts[MANIFEST])
        for key, values in changes.items():
            manifest["model"][key] |= values
        parts[MANIFEST] = json.dumps(manifest).encode()

    rewrite(path, change, signed=False)
    with pytest.raises(ModelFileError, match=match):
        unskew.load(path)


def test_the_manifest_is_strict_json_and_infinity_comes_back(tmp_path: Path) -> None:
    model = MatrixFactorization(2, max_iter=500).fit(LOG)
    model.save(tmp_path / "model")
    with zipfile.ZipFile(tmp_path / "model") as archive:
        json.loads(archive.read(MANIFEST), parse_constant=pytest.fail)

    assert model.history_[0] == np.inf
    assert unskew.load(tmp_path / "model").history_ == model.history_


@pytest.mark.parametrize("l2", [5.0, np.float64(5), np.float32(5), np.int32(5), np.int8(5)])
def test_predictions_do_not_change_after_a_file(tmp_path: Path, l2: Any) -> None:
    model = MatrixFactorization(2, l2, dtype="float32").fit(LOG)
    model.save(tmp_path / "model")
    plain = MatrixFactorization(2, 5.0, dtype="float32").fit(LOG)
    predicted = model.predict(LOG.users[LOG.user], LOG.items[LOG.item])
    again = unskew.load(tmp_path / "model").predict(LOG.users[LOG.user], LOG.items[LOG.item])

    assert predicted.tobytes() == again.tobytes()
    assert model.objective_ == plain.objective_


class Bomb:
    def __reduce__(self) -> tuple[Any, ...]:
        return pytest.fail, ("a model file ran code",)


@pytest.mark.parametrize(
    "content",
    [pickle.dumps(Bomb()), npy(np.array([Bomb()]), allow_pickle=True)],
    ids=["pickle", "npy"],
)
def test_pickles_are_never_opened(path: Path, content: bytes) -> None:
    rewrite(path, with_part("factors_.user_offset", content))

    with pytest.raises(ModelFileError, match="not a complete model file"):
        unskew.load(path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
@pytest.mark.parametrize(
    "read",
    [
        unskew.load,
        unskew.evaluation.Monitor.load,
        lambda path: MatrixFactorization(1).fit(LOG, checkpoint=path),
    ],
    ids=["model", "monitor", "checkpoint"],
)
def test_a_pipe_or_device_is_refused_and_not_read(tmp_path: Path, read: Any) -> None:
    """A pipe without a writer never ends, and neither does /dev/zero."""
    os.mkfifo(tmp_path / "pipe")

    for path in (tmp_path / "pipe", "/dev/zero"):
        with pytest.raises(UnskewError, match="it is a folder, a pipe or a device"):
            read(path)


def test_a_long_id_of_a_model_is_found(path: Path) -> None:
    ids = ["x" * 100_000, "y", "z"]
    rewrite(path, with_part("users_", json.dumps(ids).encode()))

    assert unskew.load(path).users_.tolist() == ids


def test_a_failing_write_leaves_the_old_file_whole(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: int) -> None:
        raise OSError("disk full")

    old = path.read_bytes()
    monkeypatch.setattr(os, "fsync", fail)

    with pytest.raises(OSError, match="disk full"):
        Popularity().fit(LOG).save(path)

    assert path.read_bytes() == old
    assert list(path.parent.iterdir()) == [path]


def test_a_saved_file_replaces_the_old_one_and_makes_its_folder(tmp_path: Path) -> None:
    path = tmp_path / "new" / "model"
    for model in (Popularity(), MatrixFactorization(1)):
        model.fit(LOG).save(path)
        assert type(unskew.load(path)) is type(model)
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
def test_a_saved_file_has_the_permissions_of_any_other(tmp_path: Path) -> None:
    (tmp_path / "other").write_bytes(b"")
    Popularity().fit(LOG).save(tmp_path / "model")

    assert (tmp_path / "model").stat().st_mode == (tmp_path / "other").stat().st_mode
