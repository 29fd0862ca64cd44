"""How far propensities can be trusted: weights, fit over all cells, balance and coverage."""
