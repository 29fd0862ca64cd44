from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from unskew.datasets import DATASETS
from unskew.datasets.coat import COAT, load_coat
from unskew.datasets.location import (
    Archive,
    DatasetSource,
    Files,
    check_dataset,
    describe_search,
    find_files,
    find_folder,
    find_or_download,
)
from unskew.datasets.movielens import MOVIELENS_100K
from unskew.datasets.reading import read_dataset_table
from unskew.errors import DatasetFormatError, DatasetNotFoundError, MissingExtraError, UsageError

Write = Callable[..., Path]
Serve = Callable[[dict[str, str]], Any]

CHECKSUM = "md5:00112233445566778899aabbccddeeff"
WORDS = DatasetSource(
    name="words",
    title="Words",
    layouts=(("words.txt", "more.txt"), ("words.txt",)),
    folders=("words",),
    how_to_get="Write them down.",
    archive=Archive(url="https://example.org/files/words.zip", digest="ann bob", checksum=CHECKSUM),
)


@dataclass(frozen=True)
class Words:
    digest: str


def read(files: Files) -> Words:
    return Words(" ".join(read_dataset_table(files[0], ("word",)).text("word").tolist()))


@pytest.fixture(autouse=True)
def no_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("UNSKEW_DATA", raising=False)


def fail_with(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def retrieve(*args: object, **options: object) -> str:
        raise error

    monkeypatch.setitem(sys.modules, "pooch", SimpleNamespace(retrieve=retrieve, os_cache=Path))


def test_the_path_comes_before_the_variable(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNSKEW_DATA", str(write({"words.txt": "variable"}, folder="variable")))

    assert read(find_files(WORDS, write({"words.txt": "path"}, folder="path"))).digest == "path"
    assert read(find_files(WORDS, None)).digest == "variable"


def test_the_folder_itself_comes_before_its_sub_folder(write: Write) -> None:
    root = write({"words/words.txt": "below"})
    assert find_files(WORDS, str(root)) == (root / "words" / "words.txt",)

    write({"words.txt": "here"})
    assert find_files(WORDS, str(root)) == (root / "words.txt",)


def test_the_first_complete_layout_is_taken(write: Write) -> None:
    root = write({"words.txt": "a", "more.txt": "b"})

    assert find_files(WORDS, root) == (root / "words.txt", root / "more.txt")


def test_a_tilde_is_the_home_folder(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(write({"words.txt": "home"}).parent))

    assert read(find_files(WORDS, "~/given")).digest == "home"


def test_the_home_of_an_unknown_user_is_not_found() -> None:
    with pytest.raises(
        DatasetNotFoundError,
        match=r"Words was not found in ~nosuchuser/x: there is no user with the home folder "
        r"~nosuchuser\. Pass the whole path of the folder, without ~\.$",
    ):
        find_files(WORDS, "~nosuchuser/x")


@pytest.mark.parametrize("path", [5, b"words", ["words"]], ids=repr)
def test_other_values_than_paths_are_refused(path: Any) -> None:
    with pytest.raises(
        UsageError, match="path must be the folder of Words, as text or as a path; got"
    ):
        find_files(WORDS, path)
    with pytest.raises(UsageError, match="path must be the folder of Coat Shopping"):
        load_coat(path)


def test_not_found_lists_every_place_and_what_it_lacks(write: Write) -> None:
    root = write({"more.txt": "b"})

    with pytest.raises(DatasetNotFoundError) as caught:
        find_files(WORDS, root)

    assert str(caught.value) == (
        f"Words was not found. Searched in:\n  {root}: lacks words.txt\n"
        f"  {root / 'words'}: no such folder\n Write them down."
    )
    assert caught.value.dataset == "words"


def test_a_path_that_is_given_is_never_replaced_by_the_variable_or_a_download(
    write: Write, monkeypatch: pytest.MonkeyPatch, serve: Serve, tmp_path: Path
) -> None:
    monkeypatch.setenv("UNSKEW_DATA", str(write({"words.txt": "variable"})))
    fake = serve({"words.txt": "ann\nbob"})

    with pytest.raises(DatasetNotFoundError, match="elsewhere: no such folder"):
        find_or_download(WORDS, tmp_path / "elsewhere", read)
    assert fake.requests == []


def test_files_at_hand_are_not_downloaded_and_need_no_digest(
    write: Write, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = serve({})
    monkeypatch.setenv("UNSKEW_DATA", str(write({"words.txt": "mine"})))

    assert find_or_download(WORDS, None, read).digest == "mine"
    assert fake.requests == []


def test_a_data_set_without_an_official_archive_is_never_downloaded(serve: Serve) -> None:
    fake = serve({"words.txt": "ann"})

    with pytest.raises(
        DatasetNotFoundError,
        match=r"No path was given and \$UNSKEW_DATA is not set\. Write them down\.",
    ):
        find_or_download(replace(WORDS, archive=None), None, read)
    assert fake.requests == []


@pytest.mark.parametrize("folder", ["", "words/"])
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_a_download_is_read_inside_its_zip_file(
    serve: Serve, folder: str, newline: str, tmp_path: Path
) -> None:
    fake = serve(
        {
            f"{folder}words.txt": f"ann{newline}bob{newline}",
            "../escaped.txt": "x",
            "/absolute.txt": "x",
        }
    )

    assert find_or_download(WORDS, None, read).digest == "ann bob"
    assert fake.requests == [("https://example.org/files/words.zip", CHECKSUM)]
    assert [file.relative_to(tmp_path) for file in tmp_path.rglob("*.*")] == [
        Path("cache/unskew/words.zip")
    ]


def test_a_download_of_other_content_is_an_error_and_does_not_stay(
    serve: Serve, tmp_path: Path
) -> None:
    serve({"words.txt": "eve"})

    with pytest.raises(
        DatasetFormatError,
        match=r"words\.zip is not Words as published, and was removed: .* SHA-256 eve, expected",
    ):
        find_or_download(WORDS, None, read)
    assert list(tmp_path.rglob("*.zip")) == []


def test_a_download_without_the_files_is_an_error(serve: Serve) -> None:
    serve({"readme.txt": "ann"})

    with pytest.raises(
        DatasetFormatError,
        match=r"words\.zip lacks some of words\.txt, more\.txt\. Write them down\.",
    ):
        find_or_download(WORDS, None, read)


def test_a_malformed_download_is_located_inside_its_zip_file(serve: Serve) -> None:
    serve({"words/words.txt": ""})

    with pytest.raises(DatasetFormatError, match=r"unskew.words\.zip.words.words\.txt is empty"):
        find_or_download(WORDS, None, read)


def test_a_download_that_is_no_zip_file_is_an_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    page = tmp_path / "words.zip"
    page.write_text("<html>gone</html>")
    fake = SimpleNamespace(retrieve=lambda *args, **options: str(page), os_cache=Path)
    monkeypatch.setitem(sys.modules, "pooch", fake)

    with pytest.raises(DatasetFormatError, match=r"words\.zip is not a zip file"):
        find_or_download(WORDS, None, read)
    assert not page.exists()


def test_no_network_is_not_found_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    fail_with(monkeypatch, ConnectionError("no route to host"))

    with pytest.raises(
        DatasetNotFoundError,
        match=r"Write them down\. The download of .*words\.zip failed: no route to host",
    ):
        find_or_download(WORDS, None, read)


def test_a_wrong_published_checksum_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    fail_with(monkeypatch, ValueError("hash of downloaded file does not match."))

    with pytest.raises(
        DatasetFormatError,
        match=rf"does not have its published checksum {CHECKSUM}: hash of .* match\. Write "
        rf"them down\.",
    ):
        find_or_download(WORDS, None, read)


def test_without_pooch_the_error_has_the_places_and_the_pip_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "pooch", None)
    monkeypatch.setenv("UNSKEW_DATA", str(tmp_path))

    with pytest.raises(
        MissingExtraError,
        match=r"lacks words\.txt\n[\s\S]*To download it, unskew needs pooch, which is not "
        r"installed\. Install it with: pip install 'unskew\[data\]'\. Or: Write them down\.$",
    ):
        find_or_download(WORDS, None, read)


@pytest.mark.parametrize(
    ("source", "url"),
    [
        (COAT, "https://www.cs.cornell.edu/~schnabts/mnar/coat.zip"),
        (MOVIELENS_100K, "https://files.grouplens.org/datasets/movielens/ml-100k.zip"),
    ],
)
def test_the_official_addresses(source: DatasetSource, url: str) -> None:
    assert source.archive is not None
    assert source.archive.url == url
    assert len(source.archive.digest) == 64


# Data sets by name


def test_every_data_set_is_declared_with_its_files_and_its_record() -> None:
    for name, declaration in DATASETS.items():
        source = declaration.traits["source"]

        assert (source.name, source.title) == (name, declaration.label)
        assert declaration.target.__name__ == f"load_{name.replace('-', '_')}"
        assert declaration.target.__module__ == declaration.traits["record"].__module__


def test_loaders_and_records_are_exported() -> None:
    import unskew.datasets as package

    assert package.load_coat is load_coat
    assert {"Coat", "load_coat", "load_jester", "YahooR3"} <= set(dir(package))
    assert package.__all__ == dir(package)
    with pytest.raises(AttributeError, match="load_netflix"):
        _ = package.load_netflix


def test_the_folder_of_a_data_set_is_found_or_none(write: Write) -> None:
    root = write({"jester/jester-data-1.csv": "0\n"})

    assert find_folder("jester", root) == str(root / "jester")
    assert find_folder("coat", root) is None


def test_a_data_set_without_a_published_digest_is_only_read(write: Write) -> None:
    root = write({"ratings.txt": "0\t1\t3\t1\n0\t2\t4\t0\n"})

    assert check_dataset("cm100k", root) == (
        "readable: 1 rating by 1 user on 2 items; there is no published digest to compare with"
    )


def test_content_other_than_published_is_refused(write: Write) -> None:
    root = write(
        {"u.data": "1\t1\t3\t9\n", "u.user": "1|24|M|other|1\n", "u.item": "1|Up|||" + "|0" * 19}
    )

    with pytest.raises(DatasetFormatError, match=r"MovieLens 100K in .* is not what was published"):
        check_dataset("movielens-100k", root)


def test_the_search_is_described(monkeypatch: pytest.MonkeyPatch) -> None:
    assert describe_search("data") == "data"
    assert describe_search() == "no folder: $UNSKEW_DATA is not set, and no folder was named"
    monkeypatch.setenv("UNSKEW_DATA", "/data")
    assert describe_search() == "/data ($UNSKEW_DATA)"
