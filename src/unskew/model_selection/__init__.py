"""Choosing settings and comparing learners: folds, cross-validation, random tests."""
