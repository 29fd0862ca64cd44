"""What the library says, said as the command line would: arguments as options."""

from __future__ import annotations

import re

PHRASES = {
    "with user=... from": "with --user, one of",
    "with item=... from": "with --item, one of",
    "with rating=... from": "with --rating, one of",
    "with prediction=... from": "with --prediction, one of",
    "with propensity=... from": "with --propensity, one of",
    "with position=... from": "with --position, one of",
    "for user=;": "for --user;",
    "for item=;": "for --item;",
    "for rating=;": "for --rating;",
    "for prediction=;": "for --prediction;",
    "for position=;": "for --position;",
    "pass the folder as path=...": "pass the folder with --data",
    "Pass its folder as path=...": "Pass its folder with --data",
    "universe=(n_users, n_items), counting all that could have been logged, or universe='log'": "--universe UxI, counting all "
    "that could have been logged, or --universe log",
    "universe=(n_users, n_items)": "--universe UxI",
    "universe='log'": "--universe log",
    "universe=...": "--universe UxI",
    "Choose duplicates='mean' or duplicates='last', or aggregate first": "Keep one row for each, or pass --duplicates last",
    "duplicates='last'": "--duplicates last",
    "on_bad='drop'": "--on-bad drop",
    "pass fit(log, propensities)": "pass --propensity",
    "unskew.UniformPropensity() says so; weighting='eib' does": "--propensity uniform says so; --learner eib does",
    "propensity=...": "--propensity",
    "value_propensities=... (a NaiveBayesPropensity fitted with a few ratings of cells picked at random, or a table "
    "{rating: P}) or propensities=...; without either there is mechanism='mar'": "--propensity nb with --mcar FILE, or another "
    "--propensity; without either there are --learner mixture and hl-mar",
    "propensities=...": "--propensity",
    "estimators=['naive']": "--estimator naive",
    "mcar=...": "--mcar FILE",
    "mcar=": "--mcar FILE",
    "relevant=...": "--relevant",
    "Pass relevant=": "Pass --relevant ",
    "and relevant=": "and --relevant ",
    "format=...": "--format",
    "columns=[...]": "--names",
    "position=[...]": "--position",
    "prediction=...": "--prediction COL",
    "user_features=...": "--user-features FILE",
    "item_features=...": "--item-features FILE",
    "give user_features or item_features": "give --user-features or --item-features",
    "at the unlogged cells of each. List them all with Ratings.from_frame(..., users=..., items=...)": "at the unlogged cells of "
    "each. Leave --universe out to fit it to the log's own users and items",
    "users=...": "--user-features",
    "items=...": "--item-features",
    "for by=": "for --by",
    "Name the new one with column=...": "Name the new one with --column NAME",
    "the engine 'memory'": "--engine memory",
    "transform=unskew.Clip(...)": "--clip",
    "Clip(max_weight=...)": "--clip",
    "List all of them with Ratings.from_frame(..., --user-features) and fit again": "Fit again with a log that has them",
    "List all of them with Ratings.from_frame(..., --item-features) and fit again": "Fit again with a log that has them",
    "List them all with Ratings.from_frame(..., --user-features, --item-features)": "List them all in --user-features FILE and "
    "--item-features FILE",
    "Build the log with items=[all item ids], or pass a frame with a position column": "Pass a file with a column of positions",
    "Pass a model, a callable that scores a block of users against all items, or a frame with a position column": "Pass "
    "--predictions MODEL.unskew, a file with a column of positions, or --position COL",
}
"""Ours for theirs, applied in this order."""


def as_options(text: str) -> str:
    """A message in the words of the command line, on one line."""
    said = " ".join(text.split()) if "\n" in text else text
    for library, ours in PHRASES.items():
        said = re.sub(rf"(?<!\w){re.escape(library)}", ours.replace("\\", r"\\"), said)
    return said
