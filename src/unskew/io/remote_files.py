"""Files at other places: ``https://`` by the standard library, ``s3://`` and others by fsspec."""

from __future__ import annotations

import io
import urllib.request
from dataclasses import dataclass
from typing import BinaryIO, cast
from urllib.parse import urlsplit

from unskew.errors import BadFileError, MissingExtraError
from unskew.registry import require_package

WEB = ("http", "https")
TIMEOUT = 60.0
"""Seconds without an answer after which a web server is given up."""


def is_remote(name: str) -> bool:
    """Whether a name is an address such as ``s3://bucket/log.csv``.

    >>> is_remote("s3://bucket/log.csv"), is_remote("log.csv"), is_remote("C://log.csv")
    (True, False, False)
    """
    scheme, separator, _ = name.partition("://")
    return bool(separator) and len(scheme) > 1 and scheme.isalnum()


@dataclass(frozen=True, slots=True)
class RemotePath:
    """The address of a file that is read as a whole."""

    address: str

    def __str__(self) -> str:
        return self.address

    @property
    def scheme(self) -> str:
        return urlsplit(self.address).scheme

    def is_dir(self) -> bool:
        """Folders are found out when they are read."""
        return False

    def open(self, mode: str = "rb") -> BinaryIO:
        """Its content; an error that names the address if it cannot be had."""
        try:
            return io.BytesIO(self._read())
        except ImportError as error:
            if isinstance(error, MissingExtraError):
                raise
            raise BadFileError(
                f"{self.address} cannot be read: {error}.",
                remedy="Install the package that fsspec names for this kind of address.",
            ) from error
        except MemoryError:
            raise
        except Exception as error:  # packages for addresses raise errors of any type
            raise BadFileError(
                f"{self.address} cannot be read: {error}.",
                remedy="Check the address and the rights to read it.",
            ) from error

    def _read(self) -> bytes:
        if self.scheme in WEB:
            with urllib.request.urlopen(self.address, timeout=TIMEOUT) as answer:
                return cast(bytes, answer.read())
        require_package("fsspec", extra="remote", purpose=f"reading {self.address}")
        import fsspec

        with fsspec.open(self.address, "rb") as file:
            return cast(bytes, file.read())
