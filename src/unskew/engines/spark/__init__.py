"""The reduced objective on Spark."""
