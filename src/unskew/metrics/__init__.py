"""What each observed cell is worth: a delta. Metrics never meet estimators but through a vector of deltas."""
