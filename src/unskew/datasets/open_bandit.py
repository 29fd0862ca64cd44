"""Open Bandit Dataset: items shown by a fashion shop's two policies, with clicks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from unskew.data.impressions import Impressions
from unskew.datasets import DATASETS
from unskew.datasets.location import DatasetSource, Files, PathLike, find_files
from unskew.datasets.reading import DOWNLOAD_AGAIN, DatasetTable, Integers, TextVector
from unskew.errors import BadFileError, DatasetFormatError
from unskew.io.log_files import read_times
from unskew.io.sources import FilePath, FileSource
from unskew.io.table import FileTable, PythonColumn
from unskew.io.text_files import open_rows
from unskew.settings import OneOf
from unskew.types import Vector

Campaign: TypeAlias = Literal["all", "men", "women"]
BanditPolicy: TypeAlias = Literal["random", "bts"]
CAMPAIGNS: tuple[Campaign, ...] = ("all", "men", "women")
POLICIES: tuple[BanditPolicy, ...] = ("random", "bts")
USER_FEATURES = tuple(f"user_feature_{number}" for number in range(4))
ITEM_CATEGORIES = tuple(f"item_feature_{number}" for number in range(1, 4))
BLOCK_ROWS = 1 << 12
"""Lines that are kept as text at once."""


def _list_files(policy: str, campaign: str) -> tuple[str, ...]:
    return tuple(f"{policy}/{campaign}/{name}.csv" for name in (campaign, "item_context"))


OPEN_BANDIT = DatasetSource(
    name="open-bandit",
    title="Open Bandit Dataset",
    layouts=(_list_files("random", "all"),),
    folders=("open-bandit", "open_bandit_dataset", "obd"),
    how_to_get=(
        "Get it at https://research.zozo.com/data.html , unpack it, and pass the folder with the "
        "sub-folders random and bts as `path=...`, or set $UNSKEW_DATA to it."
    ),
)


@dataclass(frozen=True, slots=True, eq=False)
class OpenBandit:
    """One log of the Open Bandit Dataset: one campaign under one policy."""

    log: Impressions
    """Shown items with clicks; each row is a request. Probabilities are marginal."""
    timestamp: npt.NDArray[Any] = field(repr=False)
    """The time (UTC) of each row."""
    user_features: TextVector = field(repr=False)
    """Row u has the four hashed features of user u, a combination of features."""
    items: Integers = field(repr=False)
    """The ids of all items of the campaign, also those that the log never shows."""
    item_number: Vector = field(repr=False)
    """``item_feature_0`` of each of ``items``, a number."""
    item_categories: TextVector = field(repr=False)
    """The other three features of each of ``items``, hashed."""


@DATASETS.declare(
    OPEN_BANDIT.name,
    label=OPEN_BANDIT.title,
    summary="26 million shown items with clicks and probabilities, two policies; CC BY 4.0.",
    traits={"source": OPEN_BANDIT, "record": OpenBandit},
)
def load_open_bandit(
    path: PathLike = None, *, campaign: Campaign = "all", policy: BanditPolicy = "random"
) -> OpenBandit:
    """Open Bandit Dataset: items shown at three positions of a fashion shop, November 2019.

    ``campaign`` is ``"all"`` (80 items), ``"men"`` (34) or ``"women"`` (46). ``policy`` is
    ``"random"`` (uniform) or ``"bts"`` (Bernoulli Thompson sampling). The files are searched in
    ``path``, else in ``$UNSKEW_DATA`` (the folder itself or its sub-folder ``open-bandit``).

    A probability is that of the item at its position. The files do not say which rows were shown
    together, so each row is a request, which suits ``"iips"`` and ``"sniips"``; values are clicks
    per shown item. They do not name users either: users with equal features are one user here, so
    clusters of users are larger than they need be. Columns of affinities are not read.

    Terms: CC BY 4.0. Source: Y. Saito, S. Aihara, M. Matsutani, Y. Narita. *Open Bandit Dataset and
    Pipeline: Towards Realistic and Reproducible Off-Policy Evaluation.* NeurIPS 2021 Datasets and
    Benchmarks. https://research.zozo.com/data.html
    """
    OneOf(CAMPAIGNS)("campaign", campaign)
    OneOf(POLICIES)("policy", policy)
    source = replace(OPEN_BANDIT, layouts=(_list_files(policy, campaign),))
    return _read(find_files(source, path))


def _read(files: Files) -> OpenBandit:
    log_file, item_file = files
    items, number, categories = _read_items(item_file)
    log, timestamp, user_features = _read_log(log_file, items)
    return OpenBandit(log, timestamp, user_features, items, number, categories)


def _read_items(file: FilePath) -> tuple[Integers, Vector, TextVector]:
    names = ("item_id", "item_feature_0", *ITEM_CATEGORIES)
    table = next(_iterate_tables(file, names, block_rows=None))
    categories = np.column_stack([table.text(name) for name in ITEM_CATEGORIES])
    return table.integers("item_id"), table.numbers("item_feature_0"), categories


def _read_log(file: FilePath, items: Integers) -> tuple[Impressions, npt.NDArray[Any], TextVector]:
    """The log, its times, and the features of its users."""
    names = ("timestamp", "item_id", "position", "click", "propensity_score", *USER_FEATURES)
    users: dict[tuple[str, ...], int] = {}
    blocks = [_read_block(table, items, users) for table in _iterate_tables(file, names)]
    columns: dict[str, Any] = {
        name: np.concatenate([block[name] for block in blocks]) for name in blocks[0]
    }
    timestamp = columns.pop("timestamp")
    log = Impressions.from_arrays(np.arange(timestamp.size), **columns, probability_is="marginal")
    return log, timestamp, np.array(list(users))


def _read_block(
    table: DatasetTable, items: Integers, users: dict[tuple[str, ...], int]
) -> dict[str, npt.NDArray[Any]]:
    """The columns of a block of rows; new combinations of features are added to ``users``."""
    timestamp = read_times(table.table.columns["timestamp"])
    table.require(np.isfinite(timestamp), "a time", "timestamp")
    item, position = table.integers("item_id"), table.integers("position")
    table.require(np.isin(item, items), "an item of item_context.csv", "item_id")
    table.require(np.isin(position, (1, 2, 3)), "a position from 1 to 3", "position")
    click, probability = table.numbers("click"), table.numbers("propensity_score")
    table.require(np.isin(click, (0, 1)), "1 (clicked) or 0", "click")
    is_valid = (probability > 0) & (probability <= 1)
    table.require(is_valid, "a probability, above 0 and up to 1", "propensity_score")
    features = zip(*(table.text(name).tolist() for name in USER_FEATURES), strict=True)
    user = np.array([users.setdefault(each, len(users)) for each in features])
    return {
        "timestamp": timestamp,
        "user": user,
        "item": item,
        "position": position,
        "reward": click,
        "probability": probability,
    }


def _iterate_tables(
    file: FilePath, needed: Sequence[str], *, block_rows: int | None = BLOCK_ROWS
) -> Iterator[DatasetTable]:
    """Some columns of a CSV file, whose first column has no name, in blocks of rows, or at once."""
    with FileSource(file).open() as content:
        header = content.readline().decode("utf-8-sig", errors="replace").rstrip("\r\n").split(",")
    for name in needed:
        if name not in header:
            raise DatasetFormatError(
                f"{file}: column {name!r} is missing.", parameter=name, remedy=DOWNLOAD_AGAIN
            )
    fields_of = {name: header.index(name) for name in needed}
    try:
        _, rows = open_rows(FileSource(file, columns=("row", *header[1:])))
        next(rows)
        block = list(islice(rows, block_rows))
        if not block:
            raise DatasetFormatError(f"{file} has no rows.", remedy=DOWNLOAD_AGAIN)
        while block:
            yield _make_table(str(file), fields_of, block)
            block = list(islice(rows, block_rows))
    except BadFileError as error:
        raise DatasetFormatError(error.problem, where=error.where, remedy=DOWNLOAD_AGAIN) from error


def _make_table(
    name: str, fields_of: dict[str, int], block: list[tuple[int, list[str]]]
) -> DatasetTable:
    columns = {
        column: PythonColumn([fields[index] or None for _, fields in block], is_text=True)
        for column, index in fields_of.items()
    }
    return DatasetTable(FileTable(name, columns, lambda row: f"line {block[row][0]}"))
