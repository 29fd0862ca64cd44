"""Model files: a zip of ``.npy`` arrays and a JSON manifest. Arrays and JSON only, never code."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
import zlib
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from unskew._version import __version__
from unskew.data.vocabulary import Ids, as_ids
from unskew.errors import ModelFileError, UsageError
from unskew.models.parameters import Parameters
from unskew.models.run import replace_file

if TYPE_CHECKING:
    from unskew.models.estimator import Recommender

FORMAT = 1
MANIFEST = "manifest.json"
MOST_BYTES = 1 << 36
"""A file that claims to unpack to more is refused before anything is read."""
DAMAGE = (
    *(zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError),
    *(ValueError, TypeError, LookupError, AttributeError, MemoryError),
)
"""What zip, JSON and NumPy raise on files that are not whole, encrypted ones and claims of impossible sizes included."""
RESULTS = ("fallback_", "objective_", "history_", "n_iter_", "converged_")


def save_model(model: Recommender, path: Path) -> None:
    """Write ``model`` to ``path``, all of it or nothing."""
    arrays = {f"parameters.{name}": np.asarray(value) for name, value in asdict(model.parameters_).items()}
    arrays |= {"seen_starts": model.seen_starts_, "seen_items": model.seen_items_}
    packed = {name: _npy(array) for name, array in arrays.items()}
    ids = {"users": _plain_ids(model.users_, "user"), "items": _plain_ids(model.items_, "item")}
    packed |= {f"ids.{name}": json.dumps(values).encode() for name, values in ids.items()}
    manifest = {
        "format": FORMAT,
        "written_by": f"unskew {__version__}",
        "class": type(model).__name__,
        "params": model.get_params(),
        "results": {name: getattr(model, name) for name in RESULTS if hasattr(model, name)},
        "sha256": {name: hashlib.sha256(content).hexdigest() for name, content in packed.items()},
    }
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr(MANIFEST, json.dumps(manifest, default=_plain))
        for name, content in packed.items():
            archive.writestr(name, content)
    replace_file(path, buffer.getvalue())


def load_model(path: str | Path, kinds: dict[str, type[Recommender]]) -> Recommender:
    """Read a model that :meth:`save` wrote; a damaged, altered, oversized or newer file is refused in words."""
    try:
        with zipfile.ZipFile(path) as archive:
            return _read(archive, Path(path), kinds)
    except FileNotFoundError as error:
        raise ModelFileError(f"there is no model file {path}.") from error
    except ModelFileError:
        raise
    except DAMAGE as error:
        raise ModelFileError(f"{path} is not a whole model file ({error}). Save the model again.") from error


def _read(archive: zipfile.ZipFile, path: Path, kinds: dict[str, type[Recommender]]) -> Recommender:
    size = sum(entry.file_size for entry in archive.infolist())
    if size > MOST_BYTES:
        raise ModelFileError(f"{path} unpacks to {size:,} bytes, more than the {MOST_BYTES:,} that are read.")
    manifest = json.loads(archive.read(MANIFEST))
    if manifest["format"] > FORMAT:
        raise ModelFileError(
            f"{path} has format {manifest['format']} ({manifest['written_by']}), and this version "
            f"reads up to {FORMAT}. Upgrade unskew."
        )
    if manifest["class"] not in kinds:
        raise ModelFileError(f"{path} holds a {manifest['class']!r}, which this version does not know.")
    content = {name: _checked(archive, path, name, digest) for name, digest in manifest["sha256"].items()}
    model = kinds[manifest["class"]](**manifest["params"])
    arrays = {name: _from_npy(value) for name, value in content.items() if not name.startswith("ids.")}
    parts = {name.removeprefix("parameters."): array for name, array in arrays.items() if name.startswith("parameters.")}
    constant = float(parts.pop("constant"))
    model.parameters_ = Parameters(**parts, constant=constant)
    model.seen_starts_, model.seen_items_ = arrays["seen_starts"], arrays["seen_items"]
    model.users_, model.items_ = (as_ids(json.loads(content[f"ids.{name}"])) for name in ("users", "items"))
    for name in set(RESULTS) & set(manifest["results"]):
        value = manifest["results"][name]
        setattr(model, name, tuple(value) if isinstance(value, list) else value)
    _require_shapes(model, path)
    return model


def _require_shapes(model: Recommender, path: Path) -> None:
    """Refuse arrays that do not belong together before a prediction trips over them."""
    found, n_users, n_items = model.parameters_, len(model.users_), len(model.items_)
    n_factors = found.user_factors.shape[-1:]
    shapes = {
        "user_factors": (found.user_factors, (n_users, *n_factors)),
        "item_factors": (found.item_factors, (n_items, *n_factors)),
        "user_offset": (found.user_offset, (n_users,)),
        "item_offset": (found.item_offset, (n_items,)),
        "seen_starts": (model.seen_starts_, (n_users + 1,)),
        "seen_items": (model.seen_items_, (int(model.seen_starts_[-1]),)),
    }
    for name, (array, expected) in shapes.items():
        if array.shape != expected:
            raise ModelFileError(f"{name} in {path} has shape {array.shape} where the ids call for {expected}.")


def _checked(archive: zipfile.ZipFile, path: Path, name: str, digest: str) -> bytes:
    content = archive.read(name)
    if hashlib.sha256(content).hexdigest() != digest:
        raise ModelFileError(f"{name} in {path} is not what was saved: the file was altered or damaged.")
    return content


def _npy(array: npt.NDArray[Any]) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    return buffer.getvalue()


def _from_npy(content: bytes) -> npt.NDArray[Any]:
    loaded: npt.NDArray[Any] = np.lib.format.read_array(io.BytesIO(content), allow_pickle=False)
    return loaded


def _plain(value: Any) -> Any:
    """NumPy's numbers, which settings may be, as JSON has them."""
    if isinstance(value, np.generic):
        return value.item()
    raise UsageError(f"a setting of type {type(value).__name__} cannot be saved: {value!r}. Use numbers, strings or None.")


def _plain_ids(ids: Ids, kind: str) -> list[Any]:
    values: list[Any] = ids.tolist()
    try:
        same = json.loads(json.dumps(values)) == values
    except (TypeError, ValueError):
        same = False
    if not same:
        raise UsageError(
            f"{kind} ids must be numbers, strings or booleans to be saved; these are {ids.dtype}, such as {values[0]!r}."
        )
    return values
