"""Devices by name, and arrays on their way there and back."""

from __future__ import annotations

import warnings
from typing import Any

import numpy.typing as npt
import torch

from unskew.errors import UsageError


def device_named(name: str | None) -> torch.device:
    """The device of that name, or the CUDA device there is."""
    try:
        device = torch.device("cuda" if name is None else name)
    except RuntimeError as error:
        raise UsageError(
            f"torch knows no device {name!r}. Pass 'cpu', 'cuda' or 'cuda:1', for example."
        ) from error
    if device.type == "cuda" and not (
        torch.cuda.is_available() and (device.index or 0) < torch.cuda.device_count()
    ):
        raise UsageError(
            f"engine='gpu' finds no CUDA device{'' if name is None else f' {name!r}'}. Leave engine=... out to work on the "
            "processors, or take GpuEngine(device='cpu') for the same code on them."
        )
    return device


def lent(array: npt.NDArray[Any]) -> torch.Tensor:
    """A tensor over the same memory, which is only ever read; torch warns where an array forbids writing."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(array)


def array_of(tensor: Any) -> Any:
    """In the host's memory."""
    return tensor.cpu().numpy()
