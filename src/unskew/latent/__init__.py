"""Likelihood models of ratings and of which ratings are observed."""
