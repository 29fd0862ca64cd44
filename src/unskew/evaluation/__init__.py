"""Evaluation of models: from a log and predictions to risks with intervals."""

from unskew.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
