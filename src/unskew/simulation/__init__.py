"""Simulated logs whose complete ratings and true propensities are known."""

from unskew.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
