"""A log and what belongs to it: ratings, propensities, the universe, ids, data frames."""
