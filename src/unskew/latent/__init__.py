"""Likelihood models of ratings and of which cells are observed."""
