"""Rankings of items: positions of logged cells, and the best items of users."""

from __future__ import annotations
