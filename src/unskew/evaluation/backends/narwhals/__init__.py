"""Sums over the rows of data frames and SQL tables, as one query in their own engine."""
