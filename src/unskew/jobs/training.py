"""A recommender fitted to a log in a file, and asked for recommendations."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from unskew.data.files import read_table
from unskew.data.formats import Source
from unskew.data.log_files import Logged, read_ids, spelled_as
from unskew.data.propensities import PropensitiesLike
from unskew.data.vocabulary import as_ids
from unskew.errors import UsageError
from unskew.loading import load
from unskew.models.estimator import Recommendations, Recommender
from unskew.models.factorization import MatrixFactorization
from unskew.selection.search import CrossValidation, cross_validate

Loss = Literal["squared", "absolute"]
Offsets = Literal["regularized", "free", "none"]


@dataclass(frozen=True, slots=True)
class Settings:
    """What a factorisation is fitted with."""

    n_factors: int = 20
    l2: float = 1.0
    loss: Loss = "squared"
    offsets: Offsets = "regularized"
    max_iter: int = 500
    seed: int = 0

    def model(self, *, verbose: bool = False) -> MatrixFactorization:
        """The model, not fitted."""
        return MatrixFactorization(
            self.n_factors,
            self.l2,
            loss=self.loss,
            offsets=self.offsets,
            max_iter=self.max_iter,
            random_state=self.seed,
            verbose=verbose,
        )


def train(
    logged: Logged,
    propensities: PropensitiesLike | None,
    settings: Settings,
    *,
    checkpoint: str | None = None,
    verbose: bool = False,
) -> MatrixFactorization:
    """Fit once, with the settings as they are."""
    return settings.model(verbose=verbose).fit(logged.ratings, propensities, checkpoint=checkpoint)


def search(
    logged: Logged,
    propensities: PropensitiesLike | None,
    settings: Settings,
    *,
    grid: Mapping[str, Sequence[Any]],
    n_folds: int = 4,
    verbose: bool = False,
) -> CrossValidation:
    """Try the settings of a grid, and fit the best to the whole log. The score is of the loss that is trained for."""
    return cross_validate(
        settings.model(),
        logged.ratings,
        propensities,
        grid=grid,
        n_folds=n_folds,
        metric="mse" if settings.loss == "squared" else "mae",
        estimator="naive" if propensities is None else "ips",
        random_state=settings.seed,
        verbose=verbose,
    )


@dataclass(frozen=True, slots=True)
class Summary:
    """How a fit ended."""

    n_ratings: int
    n_users: int
    n_items: int
    is_weighted: bool
    n_factors: int
    l2: float
    n_iter: int
    objective: float
    converged: bool

    def to_json(self) -> str:
        """All of it as one object."""
        return json.dumps(asdict(self))

    def __str__(self) -> str:
        weighted = "weighted by inverse propensity" if self.is_weighted else "each counted alike"
        ended = f"converged after {self.n_iter} steps" if self.converged else f"not yet flat after {self.n_iter} steps"
        return (
            f"{self.n_ratings:,} ratings of {self.n_users:,} users and {self.n_items:,} items, {weighted}; "
            f"rank {self.n_factors}, l2 {self.l2:g}: {ended}, objective {self.objective:.6g}."
        )


def summary(logged: Logged, model: MatrixFactorization, *, is_weighted: bool) -> Summary:
    """What was fitted to what."""
    log = logged.ratings
    return Summary(
        len(log),
        log.n_users,
        log.n_items,
        is_weighted,
        model.n_factors,
        model.l2,
        model.n_iter_,
        model.objective_,
        model.converged_,
    )


def recommended_rows(found: Recommendations) -> str:
    """Recommendations as one JSON object."""
    columns = {name: values.tolist() for name, values in found.to_columns().items()}
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    return json.dumps({"users": len(found.users), "rows": rows}, default=str)


def read_grid(texts: Sequence[str]) -> dict[str, list[Any]]:
    """``l2=0.2,1,5`` and the like: settings, each with its values."""
    names = {"factors": "n_factors"}
    grid: dict[str, list[Any]] = {}
    for text in texts:
        name, sign, values = text.partition("=")
        if not (sign and name.strip() and values.strip()):
            raise UsageError(f"a grid reads NAME=VALUE,VALUE,..., such as l2=0.2,1,5; got {text!r}.")
        key = names.get(name.strip(), name.strip())
        if key in grid:
            raise UsageError(f"the grid names {name.strip()!r} twice; list all its values at once.")
        grid[key] = _alike([_value(each.strip()) for each in values.split(",")])
    return grid


def _alike(values: list[Any]) -> list[Any]:
    """Numbers all with decimals where one has them."""
    return [float(value) if type(value) is int else value for value in values] if float in map(type, values) else values


def _value(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def recommend(
    path: str, users: Source | Sequence[str] | None, *, k: int = 10, include_seen: bool = False
) -> tuple[Recommendations, int]:
    """The best items of users, of everybody where nobody is named, and how many of the users the model does not know."""
    model = load(path)
    if not isinstance(model, Recommender):
        raise UsageError(f"{path} holds a {type(model).__name__}, which recommends nothing; name a model that train wrote.")
    if users is None:
        return model.recommend(model.users_, k, exclude_seen=not include_seen), 0
    asked = read_ids(read_table(users), "user") if isinstance(users, Source) else as_ids(list(users))
    ids = spelled_as(asked, model.users_)
    known = set(model.users_.tolist())
    n_unknown = sum(value not in known for value in ids.tolist())
    return model.recommend(ids, k, exclude_seen=not include_seen), n_unknown
