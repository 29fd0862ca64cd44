"""A log and what belongs to it: ratings, propensities, the universe, ids, data frames."""

from unskew.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
