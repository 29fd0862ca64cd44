"""Deltas and propensities to a risk with an interval. Formulas live in ``point``; what they are made of in ``sums``."""
