"""Logs and what belongs to them: ratings, propensities, frames in and out, data sets, simulation."""
