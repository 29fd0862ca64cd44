"""Fits and cross-validation of logs that stay on a Spark cluster."""
