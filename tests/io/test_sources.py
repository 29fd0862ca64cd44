"""Logs at other places: a web server of this process, and fsspec's memory."""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from urllib.error import HTTPError

import pytest
from click.testing import CliRunner

from unskew.cli import main
from unskew.errors import BadFileError, MissingExtraError
from unskew.io.files import read_table
from unskew.io.sources import FileSource, RemotePath

LOG = b"user_id,item_id,rating,new\nann,up,5,4\nann,jaws,1,2\nbob,up,4,4\n"


class Handler(BaseHTTPRequestHandler):
    """Has one log, plain and packed."""

    def do_GET(self) -> None:
        name = self.path.partition("?")[0]
        content = {"/log.csv": LOG, "/log.csv.gz": gzip.compress(LOG)}.get(name)
        self.send_response(200 if content else 404)
        self.end_headers()
        self.wfile.write(content or b"")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Nothing is printed."""


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), Handler) as web:
        thread = threading.Thread(target=web.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{web.server_port}"
        web.shutdown()
        thread.join()


@pytest.mark.parametrize("name", ["log.csv", "log.csv.gz", "log.csv?version=2"])
def test_a_log_is_read_from_a_web_server(server: str, name: str) -> None:
    table = read_table(f"{server}/{name}")

    assert list(table.names) == ["user_id", "item_id", "rating", "new"]
    assert FileSource.from_name(f"{server}/{name}").format == "csv"


def test_the_command_line_reads_an_address(server: str) -> None:
    options = ["--prediction", "new", "--estimator", "naive", "--metric", "mae", "--json"]
    result = CliRunner().invoke(main, ["evaluate", f"{server}/log.csv", *options])

    assert result.exit_code == 0, result.output
    (row,) = json.loads(result.stdout)["rows"]
    assert row["estimate"] == pytest.approx(2 / 3)


def test_a_missing_page_is_named(server: str) -> None:
    with pytest.raises(BadFileError, match=r"/none.csv cannot be read: .*404.* Check the address"):
        read_table(f"{server}/none.csv")
    result = CliRunner().invoke(main, ["validate", f"{server}/none.csv"])
    assert result.exit_code == 3


def test_the_connection_to_a_missing_page_is_closed(server: str) -> None:
    with pytest.raises(BadFileError) as failed:
        RemotePath(f"{server}/other.csv").open()

    answer = failed.value.__cause__
    assert isinstance(answer, HTTPError)
    assert answer.fp is None or answer.fp.closed


def test_fsspec_reads_every_format_that_files_have() -> None:
    fsspec = pytest.importorskip("fsspec", reason="the extra remote has fsspec")
    with fsspec.open("memory://logs/log.csv", "wb") as file:
        file.write(LOG)
    pa = pytest.importorskip("pyarrow", reason="the extra io has pyarrow")
    from pyarrow import parquet

    with fsspec.open("memory://logs/log.parquet", "wb") as file:
        parquet.write_table(
            pa.table({"user_id": ["ann"], "item_id": ["up"], "rating": [5.0]}), file
        )

    assert list(read_table("memory://logs/log.csv").names)[:3] == ["user_id", "item_id", "rating"]
    assert read_table("memory://logs/log.parquet").names == ("user_id", "item_id", "rating")


def test_an_address_of_a_missing_package_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("unskew.registry.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"pip install 'unskew\[remote\]'"):
        read_table("s3://bucket/log.csv")


def test_an_unknown_kind_of_address_is_named() -> None:
    pytest.importorskip("fsspec", reason="the extra remote has fsspec")
    with pytest.raises(BadFileError, match=r"nowhere://log.csv cannot be read: .*nowhere"):
        read_table("nowhere://log.csv")
