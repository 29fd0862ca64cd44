"""Factorisation by torch: on a CUDA device with a fused kernel, anywhere else with torch's own operations."""
