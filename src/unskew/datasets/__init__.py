"""Readers of public data sets, from a user's own copy or a checked download; none is shipped."""

from unskew.datasets.cm100k import CM100K, load_cm100k
from unskew.datasets.coat import Coat, load_coat
from unskew.datasets.jester import Jester, load_jester
from unskew.datasets.movielens import MovieLens100K, load_movielens_100k
from unskew.datasets.yahoo_r3 import YahooR3, load_yahoo_r3

__all__ = [
    "CM100K",
    "Coat",
    "Jester",
    "MovieLens100K",
    "YahooR3",
    "load_cm100k",
    "load_coat",
    "load_jester",
    "load_movielens_100k",
    "load_yahoo_r3",
]
