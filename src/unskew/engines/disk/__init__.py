"""Fits of logs that are larger than memory, on this machine."""
