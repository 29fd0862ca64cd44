"""Predictors: matrix factorisation and its relatives. They take propensity values, never propensity models."""
