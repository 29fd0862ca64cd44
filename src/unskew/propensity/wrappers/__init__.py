"""Propensity models made from other models: clipped, scaled, calibrated, cross-fitted."""
