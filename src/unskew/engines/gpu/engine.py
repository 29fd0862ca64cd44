"""The engine that ``fit(..., engine="gpu")`` asks for. torch is loaded when it runs."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec

from unskew.errors import MissingExtraError
from unskew.models.engine import Fit, Fitted


@dataclass(frozen=True, slots=True)
class GpuEngine:
    """Alternating least squares by torch, all rows of a side at once.

    Parameters
    ----------
    device
        Such as ``"cuda:1"``; ``"cpu"`` runs the same code without a GPU. None takes the CUDA device there is.
    memory
        Bytes that the log may take there; a log that needs more stays outside and is copied block by block in every half-sweep.
        None takes most of what is free.
    """

    device: str | None = None
    memory: int | None = None

    def run(self, fit: Fit, /) -> Fitted:
        """The same sweeps as the local engine, to the same optimum."""
        if find_spec("torch") is None:
            raise MissingExtraError("torch", extra="gpu", purpose="engine='gpu'")
        from unskew.engines.gpu.fitting import fit_on

        return fit_on(self.device, self.memory, fit)
