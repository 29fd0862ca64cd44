"""Devices by name, and copies of arrays to them and back."""

from __future__ import annotations

import warnings
from typing import Any

import numpy.typing as npt
import torch

from unskew.errors import UsageError


def find_device(device_name: str | None) -> torch.device:
    """The device with this name; by default the current CUDA device."""
    try:
        device = torch.device("cuda" if device_name is None else device_name)
    except RuntimeError as error:
        raise UsageError(
            f"torch has no device {device_name!r}.",
            parameter="device",
            value=device_name,
            remedy="Use 'cpu', 'cuda' or 'cuda:1', for example.",
        ) from error
    if device.type == "cuda" and not (
        torch.cuda.is_available() and (device.index or 0) < torch.cuda.device_count()
    ):
        raise UsageError(
            f"`engine='gpu'` found no CUDA device"
            f"{'' if device_name is None else f' {device_name!r}'}.",
            parameter="engine",
            value=device_name,
            remedy="Leave `engine` out, or pass `engine=GpuEngine(device='cpu')` for the same code "
            "on the processors.",
        )
    return device


def to_device(array: npt.NDArray[Any], device: torch.device) -> torch.Tensor:
    """The array on the device. On the processors it shares its memory, which is only read."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(array).to(device)


def to_host(tensor: Any) -> Any:
    """The tensor as a NumPy array."""
    return tensor.cpu().numpy()
