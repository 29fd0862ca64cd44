"""How much memory there is; work that needs more is refused before it starts."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path

from unskew.errors import MemoryLimitError, UsageError

VARIABLE = "UNSKEW_MEMORY_LIMIT"
"""The environment variable that sets the limit, such as ``8GB``; ``none`` for no limit."""
UNITS = {"": 1, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12}
CGROUP_FILES = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
SMALL = 1 << 26
"""Work that needs less is not compared with the limit: that would take longer than the work."""


def require_memory(n_bytes: float, what: str, *, parameter: str, remedy: str) -> None:
    """Raise an error if ``what`` needs more memory than the limit.

    The limit is ``$UNSKEW_MEMORY_LIMIT``, else the memory of the machine or of its container.
    """
    if n_bytes <= SMALL:
        return
    limit, source = find_limit()
    if limit is not None and n_bytes > limit:
        example = re.sub("[ ,]", "", format_bytes(2 * n_bytes))
        raise MemoryLimitError(
            f"{what} would need about {format_bytes(n_bytes)} of memory, more than the limit of "
            f"{format_bytes(limit)} ({source}).",
            parameter=parameter,
            value=n_bytes,
            remedy=f"{remedy} To raise the limit, set ${VARIABLE}, for example to "
            f"{example}, or to none.",
        )


def find_limit() -> tuple[float | None, str]:
    """The largest number of bytes that work may need, and where it comes from."""
    text = os.environ.get(VARIABLE)
    if text:
        return parse_bytes(text), f"${VARIABLE}"
    total = _find_physical_memory()
    for name in CGROUP_FILES:
        with suppress(OSError, ValueError):  # there is none, or it says "max"
            limit = int(Path(name).read_text())
            if total is None or limit < total:
                return limit, "of the container"
    return total, "of the machine"


def parse_bytes(text: str) -> float | None:
    """The number of bytes in a text such as ``8GB``; None for ``none``.

    >>> parse_bytes("1.5 GB"), parse_bytes("none")
    (1500000000.0, None)
    """
    if text.strip().lower() == "none":
        return None
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?B?)\s*", text, re.IGNORECASE)
    unit = match and match[2].upper().removesuffix("B")
    if match is None or unit is None:
        raise UsageError(
            f"${VARIABLE} must be a size such as 8GB, or none; got {text!r}.", parameter=VARIABLE
        )
    return float(match[1]) * UNITS[f"{unit}B" if unit else ""]


def format_bytes(n_bytes: float) -> str:
    """A size as text.

    >>> format_bytes(1_530_000_000), format_bytes(800)
    ('1.5 GB', '800 B')
    """
    for unit in ("TB", "GB", "MB", "KB"):
        if n_bytes >= UNITS[unit]:
            size = n_bytes / UNITS[unit]
            return f"{size:,.1f} {unit}" if size < 10 else f"{size:,.0f} {unit}"
    return f"{n_bytes:.0f} B"


def _find_physical_memory() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # not available on this system
        return None
