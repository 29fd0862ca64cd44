"""Alternating least squares and rankings by torch, on a CUDA device or on the CPU."""
