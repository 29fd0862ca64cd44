"""The state of a running fit as a file.

If a fit is interrupted, run it again with the same checkpoint; the result is identical bit for bit.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from unskew.errors import UsageError
from unskew.io.model_files import READ_ERRORS, read_stored_arrays
from unskew.io.writing import as_path, write_file
from unskew.settings import WholeNumber

S = TypeVar("S")
Arrays = Mapping[str, npt.NDArray[Any]]


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The file that keeps the state of a fit, and how often it is written."""

    path: Path
    every: int
    """Steps from one write to the next."""
    fingerprint: str
    """Identifies the log and the settings; a file with another fingerprint is refused."""

    def part(self, name: str) -> Checkpoint:
        """The checkpoint of a part of the fit, in a file next to this one."""
        return Checkpoint(
            self.path.with_name(f"{self.path.name}.{name}"),
            self.every,
            f"{self.fingerprint} {name}",
        )

    def drop(self) -> None:
        """Delete the file if it exists."""
        self.path.unlink(missing_ok=True)


def make_checkpoint(
    path: str | Path | None,
    every: int,
    settings: Mapping[str, Any],
    *arrays: npt.NDArray[Any],
    shape: tuple[int, int],
    start: Any = None,
) -> Checkpoint | None:
    """The checkpoint of a fit that settings, ``arrays``, ``shape`` and ``start`` identify."""
    WholeNumber(least=1)("checkpoint_every", every)
    if path is None:
        return None
    described = {name: _describe_setting(value) for name, value in settings.items()}
    digest = hashlib.sha256(json.dumps(described, sort_keys=True, default=repr).encode())
    digest.update(repr(shape).encode())
    for part in (*arrays, *(() if start is None else flatten_record(start).values())):
        digest.update(np.ascontiguousarray(part).tobytes())
    return Checkpoint(as_path(path, "checkpoint"), every, digest.hexdigest())


def _describe_setting(value: Any) -> Any:
    """A setting as JSON: a generator is described by its state, not by its address."""
    return value.bit_generator.state if isinstance(value, np.random.Generator) else value


def save_state(checkpoint: Checkpoint, state: Any, history: tuple[float, ...]) -> None:
    """Write a solver's state (a dataclass) as a zip of arrays, which replaces the old file at once.

    If the process is killed meanwhile, either the old file or the new one is complete.
    """
    arrays = {
        "history": np.array(history),
        "fingerprint": np.array(checkpoint.fingerprint),
        **flatten_record(state),
    }
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **arrays)
    write_file(checkpoint.path, buffer.getvalue())


def load_state(
    checkpoint: Checkpoint, start: S, *, of_any_precision: str | None = None
) -> tuple[S, tuple[float, ...]]:
    """The state and the history that :func:`save_state` wrote, bit for bit.

    ``start`` is the state before the first step. The arrays of the file must have its shapes and
    types, because compiled code reads them without a check; a length of 0 stands for any length.
    ``of_any_precision`` names the field whose arrays may be float32 or float64.
    """
    path = checkpoint.path
    try:
        arrays = read_stored_arrays(path)
        if str(arrays["fingerprint"]) != checkpoint.fingerprint:
            raise UsageError(
                f"the checkpoint {path} belongs to another log, other weights or other settings.",
                parameter="checkpoint",
                value=path,
                remedy="Delete it, or choose another file.",
            )
        history = arrays["history"]
        _require_like(history, np.array([math.inf] * len(history)), "history")
        for name, expected in flatten_record(start).items():
            if name.startswith(f"state.{of_any_precision}.") and arrays[name].dtype == np.float32:
                expected = expected.astype(np.float32)
            if name in arrays:
                _require_like(arrays[name], expected, name)
        lengths = {
            name: len(arrays[name])
            for name, like in flatten_record(start).items()
            if _is_free(like)
        }
        if len(set(lengths.values())) > 1:
            raise ValueError(f"these arrays must have equal lengths, but have {lengths}")
        return _restore_record(start, arrays), tuple(history.tolist())
    except UsageError:
        raise
    except KeyError as error:
        raise UsageError(
            f"{path} is not a checkpoint.",
            parameter="checkpoint",
            value=path,
            remedy="Choose another file.",
        ) from error
    except READ_ERRORS as error:
        raise UsageError(
            f"the checkpoint {path} cannot be read ({error}).",
            parameter="checkpoint",
            value=path,
            remedy="Delete it to start the fit again, or choose another file.",
        ) from error


def _is_free(expected: npt.NDArray[Any]) -> bool:
    """Whether an array may have any number of rows, such as the recent steps of L-BFGS."""
    return expected.ndim == 2 and len(expected) == 0


def _require_like(array: npt.NDArray[Any], expected: npt.NDArray[Any], name: str) -> None:
    """Raise an error unless an array has the expected type and shape, and is not damaged.

    It may be infinite only where that is expected, and it is never NaN.
    """
    if array.dtype.kind != expected.dtype.kind or (array.ndim and array.dtype != expected.dtype):
        raise ValueError(f"{name} has the type {array.dtype}, not {expected.dtype}")
    sizes = zip(array.shape, expected.shape, strict=False)
    if array.ndim != expected.ndim or any(size != like and like for size, like in sizes):
        raise ValueError(f"{name} has the shape {array.shape}, not {expected.shape}")
    if array.dtype.kind != "f":
        return
    may_be_infinite = not np.isfinite(expected).all()
    if np.isnan(array).any() or not (may_be_infinite or np.isfinite(array).all()):
        raise ValueError(f"{name} has numbers that are not finite")


def flatten_record(record: Any, prefix: str = "state") -> dict[str, npt.NDArray[Any]]:
    """The fields of a dataclass, and of dataclasses inside it, as named arrays."""
    arrays: dict[str, npt.NDArray[Any]] = {}
    for field in fields(record):
        value, name = getattr(record, field.name), f"{prefix}.{field.name}"
        if is_dataclass(value):
            arrays |= flatten_record(value, name)
        else:  # a GPU tensor has to be copied to the host first
            arrays[name] = np.asarray(value.cpu() if hasattr(value, "cpu") else value)
    return arrays


def _restore_record(start: S, arrays: Arrays, prefix: str = "state") -> S:
    """A record like ``start``, with the values of :func:`flatten_record`.

    Its fields are arrays, numbers or records again; field ``x`` of ``start`` is ``state.x``.
    """
    values: dict[str, Any] = {}
    for field in fields(start):  # type: ignore[arg-type]
        name, value = f"{prefix}.{field.name}", getattr(start, field.name)
        if is_dataclass(value):
            values[field.name] = _restore_record(value, arrays, name)
        elif name in arrays or field.default is MISSING:
            values[field.name] = arrays[name] if arrays[name].ndim else arrays[name].item()
    return type(start)(**values)
