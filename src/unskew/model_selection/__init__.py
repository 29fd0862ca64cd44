"""Choosing settings and comparing learners: folds, cross-validation, random tests."""

from unskew.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
