"""Fitted models as files: a zip of ``.npy`` arrays and a JSON manifest. Arrays and JSON only, never code."""

from __future__ import annotations

import hashlib
import io
import json
import os
import secrets
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
import numpy.typing as npt

from unskew._version import __version__
from unskew.data.frames import is_frame, open_frame
from unskew.data.ids import as_ids
from unskew.errors import ModelFileError, UsageError
from unskew.settings import Configurable, fitted_state, require_fitted

FORMAT = 1
MANIFEST = "manifest.json"
MOST_BYTES = 1 << 36
"""A file that claims to unpack to more is refused before anything is read."""
DAMAGE = (
    *(zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError),
    *(ValueError, TypeError, LookupError, AttributeError, MemoryError),
)
"""What zip, JSON and NumPy raise on files that are not whole, encrypted ones and claims of impossible sizes included."""

Parts = dict[str, bytes]
Kinds = Mapping[str, type[Any]]
"""Models, and records that are settings of them, by name."""


def write_model(model: Configurable, path: Path) -> None:
    """Write a fitted ``model`` to ``path``, all of it or nothing."""
    require_fitted(model)
    parts: Parts = {}
    manifest = {
        "format": FORMAT,
        "written_by": f"unskew {__version__}",
        "model": _pack(model, "", parts),
    }
    manifest["sha256"] = {
        name: hashlib.sha256(content).hexdigest() for name, content in parts.items()
    }
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr(MANIFEST, json.dumps(manifest))
        for name, content in parts.items():
            archive.writestr(name, content)
    replace_file(path, buffer.getvalue())


def read_model(path: str | Path, kinds: Kinds) -> Configurable:
    """Read a model that :func:`write_model` wrote; a damaged, altered, oversized or newer file is refused in words."""
    try:
        with zipfile.ZipFile(path) as archive:
            return _read(archive, Path(path), kinds)
    except FileNotFoundError as error:
        raise ModelFileError(f"there is no model file {path}.") from error
    except ModelFileError:
        raise
    except zipfile.BadZipFile as error:
        kind = (
            "not a whole model file"
            if _begins_as_zip(Path(path))
            else "no model file: one is what save or train wrote"
        )
        raise ModelFileError(f"{path} is {kind}.") from error
    except DAMAGE as error:
        raise ModelFileError(
            f"{path} is not a whole model file ({error}). Save the model again."
        ) from error


def _begins_as_zip(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(2) == b"PK"


def replace_file(path: Path, content: bytes) -> None:
    """All of ``content`` or the old file, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        with beside.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def _pack(model: Configurable, prefix: str, parts: Parts) -> dict[str, Any]:
    """A model as JSON; its arrays go to ``parts``, and models inside it are packed the same way."""
    settings = {
        name: _packed(value, f"{prefix}{name}", parts) for name, value in model.get_params().items()
    }
    state = {
        name: _packed(value, f"{prefix}{name}", parts)
        for name, value in fitted_state(model).items()
    }
    return {"class": type(model).__name__, "params": settings, "state": state}


def _packed(value: Any, name: str, parts: Parts) -> Any:
    """One value: a kind and where its content is."""
    if isinstance(value, Configurable):
        return {"model": _pack(value, f"{name}.", parts)}
    if is_dataclass(value) and not isinstance(value, type):
        each = {field.name: getattr(value, field.name) for field in fields(value)}
        content = {field: _packed(inner, f"{name}.{field}", parts) for field, inner in each.items()}
        return {"record": content, "class": type(value).__name__}
    if is_frame(value):
        value = open_frame(value).to_numpy()
    if isinstance(value, np.ndarray):
        parts[name], kind = (
            (_npy(value), "array")
            if value.dtype.kind in "biuf"
            else (_json_ids(value, name), "ids")
        )
        return {kind: name}
    if isinstance(value, list | tuple) and any(
        isinstance(each, Configurable | np.ndarray) for each in value
    ):
        return {
            "list": [_packed(each, f"{name}.{place}", parts) for place, each in enumerate(value)]
        }
    return {"value": _plain(value, name)}


def _read(archive: zipfile.ZipFile, path: Path, kinds: Kinds) -> Configurable:
    size = sum(entry.file_size for entry in archive.infolist())
    if size > MOST_BYTES:
        raise ModelFileError(
            f"{path} unpacks to {size:,} bytes, more than the {MOST_BYTES:,} that are read."
        )
    manifest = json.loads(archive.read(MANIFEST))
    if manifest["format"] > FORMAT:
        raise ModelFileError(
            f"{path} has format {manifest['format']} ({manifest['written_by']}), and this version "
            f"reads up to {FORMAT}. Upgrade unskew."
        )
    parts = {
        name: _checked(archive, path, name, digest) for name, digest in manifest["sha256"].items()
    }
    return _unpack(manifest["model"], parts, path, kinds)


def _unpack(packed: dict[str, Any], parts: Parts, path: Path, kinds: Kinds) -> Configurable:
    if packed["class"] not in kinds:
        raise ModelFileError(
            f"{path} holds a {packed['class']!r}, which this version does not know."
        )
    kind = kinds[packed["class"]]
    hints = get_type_hints(kind)

    def unpacked(value: dict[str, Any], name: str = "") -> Any:
        match value:
            case {"model": inner}:
                return _unpack(inner, parts, path, kinds)
            case {"record": inner}:
                record = hints[name] if name in hints else kinds[value["class"]]
                return record(**{field: unpacked(each) for field, each in inner.items()})
            case {"array": place}:
                return _from_npy(parts[place])
            case {"ids": place}:
                return as_ids(json.loads(parts[place]))
            case {"list": inner}:
                return tuple(unpacked(each) for each in inner)
            case {"value": plain}:
                return tuple(plain) if isinstance(plain, list) else plain
            case _:
                raise ModelFileError(
                    f"{path} holds something that this version does not know: {value!r}."
                )

    model: Configurable = kind(
        **{name: unpacked(value) for name, value in packed["params"].items()}
    )
    for name, value in packed["state"].items():
        if name not in hints:
            raise ModelFileError(
                f"{path} is not a whole model file: {name!r} is nothing that {kind.__name__} knows."
            )
        setattr(model, name, unpacked(value, name))
    fault = model._find_inconsistency() if packed["state"] else None
    if fault is not None:
        raise ModelFileError(f"{path} is not a whole model file: {fault} Save the model again.")
    return model


def _checked(archive: zipfile.ZipFile, path: Path, name: str, digest: str) -> bytes:
    content = archive.read(name)
    if hashlib.sha256(content).hexdigest() != digest:
        raise ModelFileError(
            f"{name} in {path} is not what was saved: the file was altered or damaged."
        )
    return content


def _npy(array: npt.NDArray[Any]) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    return buffer.getvalue()


def _from_npy(content: bytes) -> npt.NDArray[Any]:
    loaded: npt.NDArray[Any] = np.lib.format.read_array(io.BytesIO(content), allow_pickle=False)
    return loaded


def _plain(value: Any, name: str) -> Any:
    """A setting or a finding as JSON has it."""
    try:
        return json.loads(json.dumps(value, default=np.generic.item))
    except (TypeError, ValueError) as error:
        raise UsageError(
            f"{name} is a {type(value).__name__}, which cannot be saved: {value!r}. Use numbers, strings or None."
        ) from error


def _json_ids(ids: npt.NDArray[Any], name: str) -> bytes:
    values: list[Any] = ids.tolist()
    try:
        content = json.dumps(values)
        same = json.loads(content) == values
    except (TypeError, ValueError):
        same = False
    if not same:
        kind = name.rpartition(".")[2].rstrip("_").removesuffix("s")
        raise UsageError(
            f"{kind} ids must be numbers, strings or booleans to be saved; these are {ids.dtype}, such as {values[0]!r}."
        )
    return content.encode()
