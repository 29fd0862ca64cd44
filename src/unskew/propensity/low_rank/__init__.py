"""Propensities from the observed cells alone, as a matrix of low rank."""
