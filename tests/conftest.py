"""Settings and made-up data shared by all tests."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings

settings.register_profile("unskew", deadline=None, print_blob=True)
settings.load_profile("unskew")


@pytest.fixture(scope="session")
def coat_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of data sets with made-up files in the form of Coat: 30 users x 20 items, a few cells in both logs."""
    rng = np.random.default_rng(0)
    shape = (30, 20)
    rating = rng.integers(1, 6, shape)
    propensity = np.where(rating >= 4, 0.5, 0.25)
    tables = {
        "train.ascii": rating * (rng.random(shape) < propensity),
        "test.ascii": rating * (rng.random(shape) < 0.3),
        "propensities.ascii": propensity,
        "user_item_features/user_features.ascii": rng.integers(0, 2, (30, 1)),
        "user_item_features/item_features.ascii": rng.integers(0, 2, (20, 1)),
    }
    root = tmp_path_factory.mktemp("data")
    (root / "coat" / "user_item_features").mkdir(parents=True)
    for name, values in tables.items():
        (root / "coat" / name).write_text("".join(" ".join(map(str, line)) + "\n" for line in values.tolist()))
    for name in ("user", "item"):
        (root / "coat" / "user_item_features" / f"{name}_features_map.txt").write_text("gender:men")
    return root
