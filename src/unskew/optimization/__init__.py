"""Minimisation of smooth functions of a vector."""
