"""Hot loops: pure functions on arrays, compiled by numba except for :mod:`unskew.kernels.blocks`.

Nothing is compiled before a kernel is called for the first time.
"""
