"""Propensities from what is known of users and items: logistic regression, boosted trees, any classifier."""
