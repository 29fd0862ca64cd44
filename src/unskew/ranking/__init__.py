"""Positions of items in a user's ranking, and the best items of each user."""
