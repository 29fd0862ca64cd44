"""The weighted objective of matrix factorization, and its solvers."""
