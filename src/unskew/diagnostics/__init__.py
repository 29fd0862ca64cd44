"""How far propensities can be trusted: weights, fit over all cells, balance and coverage."""

from unskew.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
