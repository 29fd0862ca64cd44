"""A recommender fitted to a log in a file, and asked for recommendations."""

from __future__ import annotations

import inspect
import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from unskew.data.ids import as_ids
from unskew.data.propensities import PropensitiesLike
from unskew.errors import UnskewWarning, UsageError
from unskew.io.files import read_table
from unskew.io.formats import Source
from unskew.io.log_files import Logged, read_ids, spelled_as
from unskew.loading import load
from unskew.metrics.names import find_metric
from unskew.model_selection.search import CrossValidation, cross_validate
from unskew.models.recommender import Recommendations, Recommender
from unskew.tables import count_noun
from unskew.workflows.learners import Loss, Offsets, learner_named

RANKING = "dcg@10"
"""By which settings are judged where scores are no ratings."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What a recommender is fitted with; None leaves a setting as the learner has it."""

    n_factors: int | None = None
    l2: float | None = None
    loss: Loss | None = None
    offsets: Offsets | None = None
    max_iter: int | None = None
    seed: int = 0
    learner: str = "mf"

    def model(self, *, verbose: bool = False) -> Any:
        """The model, not fitted."""
        chosen = {
            "n_factors": self.n_factors,
            "l2": self.l2,
            "loss": self.loss,
            "offsets": self.offsets,
        }
        further = {"max_iter": self.max_iter, "random_state": self.seed, "verbose": verbose}
        return learner_named(self.learner).model(chosen | further)


def train(
    logged: Logged,
    propensities: PropensitiesLike | None,
    settings: Settings,
    *,
    checkpoint: str | None = None,
    verbose: bool = False,
) -> Recommender:
    """Fit once, with the settings as they are."""
    _warn_if_unread(propensities, settings)
    model = settings.model(verbose=verbose)
    if checkpoint is None:
        fitted: Recommender = model.fit(logged.ratings, propensities)
        return fitted
    if "checkpoint" not in inspect.signature(model.fit).parameters:
        raise UsageError(f"the learner {settings.learner!r} keeps no checkpoint.")
    resumed: Recommender = model.fit(logged.ratings, propensities, checkpoint=checkpoint)
    return resumed


def search(
    logged: Logged,
    propensities: PropensitiesLike | None,
    settings: Settings,
    *,
    grid: Mapping[str, Sequence[Any]],
    n_folds: int = 4,
    metric: str | None = None,
    relevant: float | None = None,
    verbose: bool = False,
) -> CrossValidation:
    """Try the settings of a grid, and fit the best to the whole log."""
    _warn_if_unread(propensities, settings)
    return cross_validate(
        settings.model(),
        logged.ratings,
        propensities,
        grid=grid,
        n_folds=n_folds,
        metric=judging_metric(settings, metric, relevant=relevant),
        relevant=relevant,
        estimator="naive" if propensities is None else "ips",
        random_state=settings.seed,
        verbose=verbose,
    )


def judging_metric(
    settings: Settings, given: str | None = None, *, relevant: float | None = None
) -> str:
    """What settings are judged by: as given, else the loss that is trained for, or a ranking metric where scores only rank."""
    if given is not None:
        return find_metric(given, relevant=relevant).name
    if not learner_named(settings.learner).kind.predicts_ratings:
        return RANKING
    return "mae" if settings.loss == "absolute" else "mse"


def _warn_if_unread(propensities: PropensitiesLike | None, settings: Settings) -> None:
    if propensities is not None and not learner_named(settings.learner).reads_propensities:
        warnings.warn(
            f"the learner {settings.learner!r} has no use for propensities: it is fitted as it would be without them.",
            UnskewWarning,
            stacklevel=3,
        )


@dataclass(frozen=True, slots=True)
class Summary:
    """How a fit ended."""

    n_ratings: int
    n_users: int
    n_items: int
    is_weighted: bool
    model: str
    n_factors: int | None = None
    l2: float | None = None
    n_iter: int | None = None
    objective: float | None = None
    converged: bool | None = None

    def to_json(self) -> str:
        """All of it as one object."""
        return json.dumps(asdict(self))

    def __str__(self) -> str:
        weighted = "with propensities" if self.is_weighted else "each counted alike"
        sizes = f"{count_noun(self.n_ratings, 'rating')} of {count_noun(self.n_users, 'user')} and {count_noun(self.n_items, 'item')}"
        log = f"{sizes}, {weighted}"
        if self.n_iter is None or self.objective is None:
            return f"{log}; {self.model}."
        steps = count_noun(self.n_iter, "step")
        ended = f"converged after {steps}" if self.converged else f"not yet flat after {steps}"
        return f"{log}; {self.model}: {ended}, objective {self.objective:.6g}."


def summary(
    logged: Logged, model: Recommender, settings: Settings, *, is_weighted: bool
) -> Summary:
    """What was fitted to what; ``is_weighted`` says whether there were propensities."""
    log, chosen = logged.ratings, model.get_params()
    told = [getattr(model, name, None) for name in ("n_iter_", "objective_", "converged_")]
    sizes = (
        len(log),
        log.n_users,
        log.n_items,
        is_weighted and learner_named(settings.learner).reads_propensities,
    )
    return Summary(*sizes, repr(model), chosen.get("n_factors"), chosen.get("l2"), *told)


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
            raise UsageError(
                f"a grid reads NAME=VALUE,VALUE,..., such as l2=0.2,1,5; got {text!r}."
            )
        key = names.get(name.strip(), name.strip())
        if key in grid:
            raise UsageError(f"the grid names {name.strip()!r} twice; list all its values at once.")
        grid[key] = _alike([_value(each.strip()) for each in values.split(",")])
    return grid


def _alike(values: list[Any]) -> list[Any]:
    """Numbers all with decimals where one has them."""
    return (
        [float(value) if type(value) is int else value for value in values]
        if float in map(type, values)
        else values
    )


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
        raise UsageError(
            f"{path} holds a {type(model).__name__}, which recommends nothing; name a model that train wrote."
        )
    if users is None:
        return model.recommend(model.users_, k, exclude_seen=not include_seen), 0
    asked = (
        read_ids(read_table(users), "user") if isinstance(users, Source) else as_ids(list(users))
    )
    ids = spelled_as(asked, model.users_)
    known = set(model.users_.tolist())
    n_unknown = sum(value not in known for value in ids.tolist())
    return model.recommend(ids, k, exclude_seen=not include_seen), n_unknown
