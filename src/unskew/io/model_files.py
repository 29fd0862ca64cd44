"""Fitted models as files: a zip of ``.npy`` arrays and a JSON manifest, never code."""

from __future__ import annotations

import hashlib
import io
import json
import math
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

import numpy as np
import numpy.typing as npt

from unskew._version import __version__
from unskew.data.frames import is_frame, open_frame
from unskew.data.ids import as_ids
from unskew.errors import ModelFileError, UsageError
from unskew.io.writing import write_file
from unskew.settings import Configurable, fitted_state, is_fitted_name, require_fitted
from unskew.tables import count_noun

FORMAT = 1
MANIFEST = "manifest.json"
READ_ERRORS = (
    *(zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError),
    *(ValueError, TypeError, LookupError, AttributeError, ArithmeticError, MemoryError),
)
"""What zip, JSON and NumPy raise for files that are damaged, encrypted or impossibly large."""

Parts = dict[str, bytes]
"""The files inside the zip file, by name."""
Kinds = Mapping[str, type[Any]]
"""Classes of models, and of records inside them, by name."""


def write_model(model: Configurable, path: Path) -> None:
    """Write a fitted model to ``path``, completely or not at all."""
    require_fitted(model)
    parts: Parts = {}
    manifest = {
        "format": FORMAT,
        "written_by": f"unskew {__version__}",
        "model": _pack_model(model, "", parts),
    }
    manifest["sha256"] = {
        name: hashlib.sha256(content).hexdigest() for name, content in parts.items()
    }
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr(MANIFEST, json.dumps(manifest, allow_nan=False))
        for name, content in parts.items():
            archive.writestr(name, content)
    write_file(path, buffer.getvalue())


def read_model(path: str | Path, kinds: Kinds) -> Configurable:
    """Read a model that :func:`write_model` wrote.

    Only classes of ``kinds`` are built, and records that a class of ``kinds`` has as the
    annotated type of a fitted attribute. An error if the file is damaged, altered, too large,
    or of a newer version.
    """
    try:
        require_regular(Path(path))
        with zipfile.ZipFile(path) as archive:
            return _read_archive(archive, Path(path), kinds)
    except FileNotFoundError as error:
        raise ModelFileError(
            f"there is no model file {path}.", value=path, remedy="Check the path."
        ) from error
    except ModelFileError:
        raise
    except zipfile.BadZipFile as error:
        if _starts_as_zip(Path(path)):
            raise _damaged_error(Path(path), "the end is missing") from error
        raise ModelFileError(
            f"{path} is not a model file.",
            value=path,
            remedy="Pass a file written by model.save(), `unskew train` or "
            "`unskew propensity fit`.",
        ) from error
    except READ_ERRORS as error:
        raise _damaged_error(Path(path), str(error)) from error


def require_regular(path: Path) -> None:
    """Raise an error if a path is a folder, or a pipe or device, which may have no end."""
    if path.exists() and not path.is_file():
        raise OSError("it is a folder, a pipe or a device")


def _starts_as_zip(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(2) == b"PK"
    except OSError:
        return False


def _damaged_error(path: Path, reason: str) -> ModelFileError:
    return ModelFileError(
        f"{path} is not a complete model file: {reason.rstrip('.')}.",
        value=path,
        remedy="Save the model again.",
    )


def _pack_model(model: Configurable, prefix: str, parts: Parts) -> dict[str, Any]:
    """A model as JSON; its arrays go to ``parts``, under names that start with ``prefix``."""
    settings = {
        name: _pack_value(value, f"{prefix}{name}", parts)
        for name, value in model.get_params(deep=False).items()
    }
    state = {
        name: _pack_value(value, f"{prefix}{name}", parts)
        for name, value in fitted_state(model).items()
    }
    return {"class": type(model).__name__, "params": settings, "state": state}


def _pack_value(value: Any, name: str, parts: Parts) -> Any:
    """One value as ``{type: content}``; an array as ``{type: name in parts}``."""
    if isinstance(value, Configurable):
        return {"model": _pack_model(value, f"{name}.", parts)}
    if is_dataclass(value) and not isinstance(value, type):
        content = {
            field.name: _pack_value(getattr(value, field.name), f"{name}.{field.name}", parts)
            for field in fields(value)
            if field.init
        }
        return {"record": content, "class": type(value).__name__}
    if is_frame(value):
        value = open_frame(value).to_numpy()
    if isinstance(value, np.ndarray):
        is_number = value.dtype.kind in "biuf"
        parts[name] = _encode_array(value) if is_number else _encode_ids(value, name)
        return {"array" if is_number else "ids": name}
    if isinstance(value, tuple) and value and all(isinstance(entry, float) for entry in value):
        parts[name] = _encode_array(np.array(value))
        return {"floats": name}
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": repr(float(value))}
    if isinstance(value, list | tuple) and any(
        isinstance(entry, Configurable | np.ndarray) for entry in value
    ):
        return {
            "list": [
                _pack_value(entry, f"{name}.{number}", parts) for number, entry in enumerate(value)
            ]
        }
    return {"value": _to_json(value, name)}


def read_stored_arrays(path: Path) -> dict[str, npt.NDArray[Any]]:
    """The arrays of an ``.npz`` file that is not compressed."""
    require_regular(path)
    with zipfile.ZipFile(path) as archive:
        require_stored(archive, path.stat().st_size)
    with np.load(path, allow_pickle=False) as arrays:
        return dict(arrays)


def require_stored(archive: zipfile.ZipFile, n_bytes: int) -> None:
    """Raise an error unless the parts of a file are stored as they are, in its ``n_bytes``.

    This package never compresses them. A compressed part of a few bytes could fill the memory.
    """
    entries = archive.infolist()
    packed = next((each for each in entries if each.compress_type != zipfile.ZIP_STORED), None)
    if packed is not None:
        raise ValueError(
            f"{packed.filename} is compressed, to unpack to {packed.file_size:,} bytes; files of "
            "this package never are"
        )
    n_claimed = sum(entry.file_size for entry in entries)
    if n_claimed > n_bytes:
        raise ValueError(f"its parts claim {n_claimed:,} bytes, but it has {n_bytes:,}")


def _read_archive(archive: zipfile.ZipFile, path: Path, kinds: Kinds) -> Configurable:
    require_stored(archive, path.stat().st_size)
    manifest = json.loads(archive.read(MANIFEST))
    if manifest["format"] > FORMAT:
        raise ModelFileError(
            f"{path} has format {manifest['format']} ({manifest['written_by']}), and this version "
            f"reads up to {FORMAT}.",
            value=manifest["format"],
            remedy="Upgrade unskew.",
        )
    parts = {
        name: _read_part(archive, path, name, digest) for name, digest in manifest["sha256"].items()
    }
    return _unpack_model(manifest["model"], parts, path, kinds)


def _unpack_model(packed: dict[str, Any], parts: Parts, path: Path, kinds: Kinds) -> Configurable:
    if packed["class"] not in kinds:
        raise ModelFileError(
            f"{path} holds a model of class {packed['class']!r}, which is not known here.",
            value=packed["class"],
            remedy="Upgrade unskew, or import the module that declares this class.",
        )
    kind = kinds[packed["class"]]
    hints = get_type_hints(kind)

    def build_record(record: type[Any], values: dict[str, Any]) -> Any:
        types = get_type_hints(record)
        for key, value in values.items():
            if not _has_type(value, types.get(key, Any)):
                raise _damaged_error(path, f"{key} is {value!r}, not {types[key]}")
        return record(**values)

    def unpack(value: dict[str, Any], name: str = "") -> Any:
        match value:
            case {"model": inner}:
                return _unpack_model(inner, parts, path, kinds)
            case {"record": inner}:
                record = hints[name] if name in hints else kinds[value["class"]]
                return build_record(record, {key: unpack(entry) for key, entry in inner.items()})
            case {"array": part}:
                return _decode_array(parts[part], part)
            case {"floats": part}:
                return tuple(map(float, _decode_array(parts[part], part)))
            case {"float": text}:
                return float(text)
            case {"ids": part}:
                return as_ids(json.loads(parts[part]))
            case {"list": inner}:
                return tuple(unpack(entry) for entry in inner)
            case {"value": plain}:
                return tuple(plain) if isinstance(plain, list) else plain
            case _:
                raise ModelFileError(
                    f"{path} holds a value that this version does not know: {value!r}.",
                    remedy="Upgrade unskew.",
                )

    model: Configurable = kind(**{name: unpack(value) for name, value in packed["params"].items()})
    for name, value in packed["state"].items():
        if not is_fitted_name(name) or hasattr(kind, name):
            raise _damaged_error(path, f"{kind.__name__} has no fitted attribute {name!r}")
        unpacked = unpack(value, name)
        if not _has_type(unpacked, hints.get(name, Any)):
            raise _damaged_error(path, f"{name} is {unpacked!r}, not {hints[name]}")
        setattr(model, name, unpacked)
    model._check_settings()
    problem = model._find_inconsistency() if packed["state"] else None
    if problem is not None:
        raise _damaged_error(path, problem)
    return model


def _has_type(value: object, hint: Any) -> bool:
    """Whether a value that is not an array has the annotated type; True if that is not plain."""
    if isinstance(hint, UnionType):
        return any(_has_type(value, option) for option in get_args(hint))
    if hint is float:
        return isinstance(value, int | float) and not (isinstance(value, bool) or value != value)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if get_origin(hint) in (np.ndarray, npt.NDArray):  # NumPy 2.5 has its own origin
        return isinstance(value, np.ndarray) and value.dtype.kind in _list_kinds(hint)
    if get_origin(hint) is dict:
        _, content = get_args(hint)
        return isinstance(value, dict) and all(_has_type(each, content) for each in value.values())
    if get_origin(hint) is tuple:
        content = get_args(hint)[0]
        return isinstance(value, tuple) and all(_has_type(each, content) for each in value)
    return hint is Any or not isinstance(hint, type) or isinstance(value, hint)


def _list_kinds(hint: Any) -> str:
    """The kinds of numbers that an array with this annotation may hold."""
    scalar = get_args(hint)[-1]
    scalar = get_args(scalar)[0] if get_origin(scalar) is np.dtype else scalar
    scalar = get_origin(scalar) or scalar
    for kind, kinds in ((np.floating, "f"), (np.integer, "iu"), (np.bool_, "b")):
        if isinstance(scalar, type) and issubclass(scalar, kind):
            return kinds
    return "biufOUSTmM"  # ids of any type


def _read_part(archive: zipfile.ZipFile, path: Path, name: str, digest: str) -> bytes:
    content = archive.read(name)
    if hashlib.sha256(content).hexdigest() != digest:
        raise ModelFileError(
            f"{name} in {path} is not what was saved: the file was altered or damaged.",
            value=name,
            remedy="Save the model again.",
        )
    return content


def _encode_array(array: npt.NDArray[Any]) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    return buffer.getvalue()


def _decode_array(content: bytes, name: str) -> npt.NDArray[Any]:
    array: npt.NDArray[Any] = np.lib.format.read_array(io.BytesIO(content), allow_pickle=False)
    if array.dtype.kind not in "biuf" or not array.dtype.isnative:
        raise ValueError(
            f"{name} has the type {array.dtype}, not bool, int or float in native byte order"
        )
    is_missing = np.isnan(array) if array.dtype.kind == "f" else np.zeros(0, bool)
    if is_missing.any():
        index = ", ".join(map(str, np.argwhere(is_missing)[0]))
        raise ValueError(
            f"{name} has {count_noun(int(is_missing.sum()), 'missing number')} (NaN); the first is "
            f"at [{index}]"
        )
    return array


def _to_json(value: Any, name: str) -> Any:
    """A setting, or a fitted attribute that is not an array, in the types of JSON."""
    try:
        return json.loads(json.dumps(value, default=np.generic.item, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise UsageError(
            f"{name} is a {type(value).__name__}, which cannot be saved: {value!r}.",
            parameter=name,
            value=value,
            remedy="Use numbers, strings or None.",
        ) from error


def _encode_ids(ids: npt.NDArray[Any], name: str) -> bytes:
    """Ids as JSON; an error if they would come back as something else."""
    values: list[Any] = ids.tolist()
    try:
        content = json.dumps(values)
        is_same = json.loads(content) == values
    except (TypeError, ValueError):
        is_same = False
    if not is_same:
        kind = name.rpartition(".")[2].rstrip("_").removesuffix("s")
        raise UsageError(
            f"{kind} ids must be numbers, strings or booleans to be saved; "
            f"these are {ids.dtype}, such as {values[0]!r}.",
            parameter=name,
            value=values[0],
            remedy="Convert the ids of the log to text, and fit again.",
        )
    return content.encode()
