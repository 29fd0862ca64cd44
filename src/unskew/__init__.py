"""Evaluate and train recommenders on logs that are missing not at random.

Names are imported when they are first used, so ``import unskew`` is quick. ``__init__.pyi`` lists
them: what most users need is here, the rest is in the packages below.
"""

from unskew.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
