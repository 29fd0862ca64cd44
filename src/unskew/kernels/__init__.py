"""Hot loops, compiled by numba: pure functions on arrays.

Nothing is compiled before a kernel is called for the first time.
"""
