"""Propensity models: from a log to the probability that each of its cells was observed."""
