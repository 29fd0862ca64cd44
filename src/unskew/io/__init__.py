"""Files in and out: tables of ratings, and models."""
