"""Where the sums of an evaluation are computed, besides NumPy arrays."""
