"""Hot loops, compiled by numba: pure functions on arrays. Import the module you need; nothing is compiled until called."""
