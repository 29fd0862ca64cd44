"""Choosing settings by propensity-scaled cross-validation."""
