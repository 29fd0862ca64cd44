"""How far propensities can be trusted: their weights, their fit to what was observed, the balance they bring, their reach."""
