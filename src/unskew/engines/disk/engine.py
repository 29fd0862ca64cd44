"""The engine of ``engine="disk"``. It imports DuckDB when it is used."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from unskew.factorization.engine import FrameFitRequest, FrameFitResult


@dataclass(frozen=True, slots=True)
class DiskEngine:
    """Fits a log in Parquet files that is larger than memory.

    DuckDB sorts the log once by user and once by item, outside of memory. Both copies are files
    of 10 to 20 bytes for each rating, which every sweep reads from start to end. The factors, and
    the ids of users and items, are in memory.

    Parameters
    ----------
    folder
        Where the sorted copies are written; they are deleted after the fit. By default the folder
        for temporary files.
    memory
        Bytes that DuckDB may use to sort.
    n_threads
        The number of threads; by default one for each processor.
    user, item, rating
        Names of columns. By default columns with common names are used.
    """

    folder: str | None = None
    memory: int = 600_000_000
    n_threads: int | None = None
    user: str | None = None
    item: str | None = None
    rating: str | None = None
    name: ClassVar[str] = "disk"

    def fit_frame(self, request: FrameFitRequest, /) -> FrameFitResult:
        """Fit Eq. (14) by the sweeps of the local engine, to the same optimum."""
        from unskew.engines.disk.fitting import fit_on_disk

        return fit_on_disk(self, request)
