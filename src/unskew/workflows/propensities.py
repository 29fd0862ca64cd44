"""Propensities for a log: a column of its file, a model that was saved, or one that is fitted here."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any, Literal, TypeAlias

import numpy as np

from unskew.data.frames import make_frame
from unskew.data.ids import Ids, find_codes, missing_ids
from unskew.data.propensities import PropensitiesLike, as_propensities
from unskew.data.ratings import Ratings
from unskew.data.universe import UniverseLike
from unskew.diagnostics.diagnose import diagnose
from unskew.diagnostics.result import Diagnosis
from unskew.errors import ColumnError, UnknownNameError, UnskewWarning, UsageError
from unskew.io.files import read_table
from unskew.io.formats import Source
from unskew.io.log_files import (
    Logged,
    OnBad,
    Repeats,
    Rows,
    Wanted,
    read_ids,
    read_log,
    read_numbers,
    rows_of_ids,
    spelled_as,
)
from unskew.io.table import Table
from unskew.loading import load
from unskew.propensity.covariate.logistic import LogisticPropensity
from unskew.propensity.low_rank.one_bit import OneBitPropensity
from unskew.propensity.low_rank.poisson import PoissonPropensity
from unskew.propensity.model import PropensityModel
from unskew.propensity.naive_bayes import NaiveBayesPropensity
from unskew.propensity.popularity import PopularityPropensity, UniformPropensity
from unskew.propensity.sample import LearnsFromSample
from unskew.types import Vector
from unskew.workflows.gates import Numbers

Kind: TypeAlias = Literal["user", "item"]
SAVED = ".unskew"
QUICK = ("nb", "popularity", "uniform")
"""Models that are fitted on the way to something else."""


@dataclass(frozen=True, slots=True)
class Covariates:
    """What is known of users and items, each a table with a column of ids."""

    user: Table | None = None
    item: Table | None = None

    @classmethod
    def of(cls, user: Source | None, item: Source | None) -> Covariates:
        """Read the files that there are."""
        return cls(*(None if source is None else read_table(source) for source in (user, item)))

    def ids(self, kind: Kind) -> Ids | None:
        """All users (items) there are, where a table lists them."""
        table = self.user if kind == "user" else self.item
        return None if table is None else read_ids(table, kind)

    def frame(self, kind: Kind, ids: Ids) -> Any:
        """A frame with a row for each of ``ids``, in their order; None where there is no table."""
        table = self.user if kind == "user" else self.item
        if table is None:
            return None
        rows, key = rows_of_ids(table, kind, ids), table.find(kind)
        covariates = {name: _covariate(table, name, rows) for name in table.names if name != key}
        return make_frame({f"{kind}_id": ids.tolist()} | covariates, _library())


BUILDERS: Mapping[str, Callable[[Any, Any, int, bool], PropensityModel]] = {
    "nb": lambda _users, _items, _seed, _verbose: NaiveBayesPropensity(),
    "popularity": lambda _users, _items, _seed, _verbose: PopularityPropensity(),
    "uniform": lambda _users, _items, _seed, _verbose: UniformPropensity(),
    "logistic": lambda users, items, seed, verbose: LogisticPropensity(
        users, items, random_state=seed, verbose=verbose
    ),
    "onebit": lambda _users, _items, seed, verbose: OneBitPropensity(
        random_state=seed, verbose=verbose
    ),
    "poisson": lambda _users, _items, seed, verbose: PoissonPropensity(
        random_state=seed, verbose=verbose
    ),
}
"""Models by the names that users type, from frames of covariates, a seed, and whether to show progress."""


def read_logged(
    source: Source,
    wanted: Wanted,
    *,
    universe: UniverseLike = None,
    on_bad: OnBad = "raise",
    repeats: Repeats = "raise",
    covariates: Covariates | None = None,
) -> Logged:
    """A log from its file; users and items that tables of covariates list count as listed."""
    listed = covariates or Covariates()
    return read_log(
        read_table(source),
        wanted,
        universe=universe,
        on_bad=on_bad,
        repeats=repeats,
        users=listed.ids("user"),
        items=listed.ids("item"),
    )


def read_weighted(
    source: Source,
    wanted: Wanted,
    propensity: str | None,
    *,
    universe: UniverseLike = None,
    on_bad: OnBad = "raise",
    repeats: Repeats = "raise",
) -> Logged:
    """A log with the column of propensities, where ``propensity`` names one; without a name no column is taken for one."""
    table = read_table(source)
    column = None if propensity is None else named_column(table, propensity)
    return read_log(
        table, replace(wanted, propensity=column), universe=universe, on_bad=on_bad, repeats=repeats
    )


def fit_propensity(
    name: str,
    log: Ratings,
    *,
    mcar: Source | None = None,
    covariates: Covariates | None = None,
    seed: int = 0,
    verbose: bool = False,
) -> PropensityModel:
    """A propensity model by its name, fitted to a log; ``mcar`` is a file of ratings that were picked at random."""
    if name not in BUILDERS:
        raise UnknownNameError("propensity model", name, BUILDERS)
    known = covariates or Covariates()
    if name != "logistic" and (known.user or known.item):
        raise UsageError(
            f"the propensity model {name!r} looks at no features of users or items; only 'logistic' does."
        )
    model = BUILDERS[name](
        known.frame("user", log.users), known.frame("item", log.items), seed, verbose
    )
    if not isinstance(model, LearnsFromSample):
        if mcar is not None:
            raise UsageError(
                f"the propensity model {name!r} learns nothing from a random sample; leave mcar=... out."
            )
        return model.fit(log)
    if mcar is None:
        raise UsageError(
            f"the propensity model {name!r} needs a file of ratings that were picked at random: pass mcar=..."
        )
    return model.fit(log, mcar=read_numbers(read_table(mcar), "rating"))


def load_propensity(path: str) -> PropensityModel:
    """A propensity model from its file."""
    model = load(path)
    if not isinstance(model, PropensityModel):
        raise UsageError(
            f"{path} holds a {type(model).__name__}, which recommends; a propensity model is needed here."
        )
    return model


def named_column(table: Table, given: str | None) -> str | None:
    """The column of propensities that is meant: the one of that name, or without a name the one that is spelled so."""
    if given is None:
        return table.find("propensity") if table.spells("propensity") else None
    if given in table.names:
        return given
    if given.endswith(SAVED) or given in QUICK:
        return None
    raise ColumnError(
        f"{table.name}: {given!r} is no propensity: neither a column ({', '.join(map(repr, table.names))}) "
        f"nor a file ending in {SAVED} nor one of {', '.join(QUICK)}."
    )


def propensities_for(
    logged: Logged, given: str | None, mcar: Source | None, seed: int = 0
) -> PropensitiesLike | None:
    """Values for the rows of the log, as ``given`` says; None where nothing was said and there is no column."""
    if mcar is not None and given != "nb":
        raise UsageError(
            f"mcar=... is for the propensity model 'nb'; here propensities are {given!r}."
        )
    if logged.wanted.propensity is not None:
        return logged.propensities
    if given is None:
        return None
    return predicted(given, logged.ratings, mcar, seed)


def predicted(given: str, log: Ratings, mcar: Source | None, seed: int = 0) -> Vector:
    """What a saved model, or one fitted here, says of the log."""
    if given.endswith(SAVED):
        return predict(load_propensity(given), log)
    return predict(fit_propensity(given, log, mcar=mcar, seed=seed), log)


def predict(model: PropensityModel, log: Ratings) -> Vector:
    """One propensity for each cell of the log, whose ids may be spelled as another file spells them."""
    return as_propensities(_respelled(log, model), model).values


def apply_propensity(path: str, logged: Logged, column: str = "propensity") -> dict[str, Any]:
    """All columns of the log's file and the propensity of every row."""
    model, names = load_propensity(path), logged.table.names
    if column in names:
        raise ColumnError(
            f"{logged.table.name} has a column {column!r} already. Name the new one with column=..., or drop it."
        )
    values = predict(model, logged.ratings)
    return {name: _written(logged, name) for name in names} | {column: values}


def listed_for(covariates: Covariates, sources: Sequence[str]) -> Covariates | None:
    """The covariates, where every model among the sources knows all users and items that they list."""
    saved = [given for given in sources if given.endswith(SAVED)]
    models = [load_propensity(given) for given in saved]
    users, items = covariates.ids("user"), covariates.ids("item")
    unknown = [
        given
        for given, model in zip(saved, models, strict=True)
        if not (_knows(model.users_, users) and _knows(model.items_, items))
    ]
    if unknown:
        warnings.warn(
            f"{', '.join(unknown)} was fitted without some of the users and items that the features list, so that all numbers "
            "are over the log's own users and items only. Fit it again with user_features=... and item_features=....",
            UnskewWarning,
            stacklevel=2,
        )
    return None if unknown else covariates


def _knows(vocabulary: Ids, ids: Ids | None) -> bool:
    return ids is None or bool((find_codes(spelled_as(ids, vocabulary), vocabulary) >= 0).all())


def diagnose_log(
    logged: Logged,
    sources: Sequence[str],
    *,
    covariates: Covariates | None = None,
    mcar: Source | None = None,
    seed: int = 0,
) -> Diagnosis:
    """How far columns of the log's file, or saved models, can be trusted."""
    log, known = logged.ratings, covariates or Covariates()
    named = dict(_source(given, logged, mcar, seed) for given in sources)
    if len(named) < len(sources):
        raise UsageError(f"two propensities have one name; they are {', '.join(sources)}.")
    return diagnose(
        log,
        named,
        user_features=known.frame("user", log.users),
        item_features=known.frame("item", log.items),
        random_state=seed,
    )


def _source(
    given: str, logged: Logged, mcar: Source | None, seed: int
) -> tuple[str, PropensitiesLike]:
    if given in logged.table.names:
        return given, logged.numbers(given)
    if given.endswith(SAVED):
        return given.rpartition("/")[2].removesuffix(SAVED), _as_spelled(
            load_propensity(given), logged.ratings
        )
    named_column(logged.table, given)
    return given, fit_propensity(
        given, logged.ratings, mcar=mcar if given == "nb" else None, seed=seed
    )


def diagnosis_numbers(found: Diagnosis) -> Numbers:
    """The numbers that a gate may look at: every measure, ``ess`` being the effective sample size."""
    measures = {checkup.name: checkup.measures() for checkup in found.checkups}
    names = next(iter(measures.values()))
    by_name: dict[str, dict[str, float | None]] = {
        name: {model: _number(each[name]) for model, each in measures.items()}
        for name in names
        if not any(isinstance(each[name], str) for each in measures.values())
    }
    return {"ess": by_name["effective_sample_size"]} | by_name


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) else None


def _library() -> str | None:
    """The library pyarrow where it is there, which loads quickest."""
    return "pyarrow" if find_spec("pyarrow") else None


def _covariate(table: Table, name: str, rows: Rows) -> list[Any]:
    """Numbers where all that is there are numbers, else categories."""
    column = table.columns[name]
    numbers, values = column.numbers()[rows], column.ids()[rows]
    if np.isfinite(numbers[~missing_ids(values)]).all():
        return numbers.tolist()  # type: ignore[no-any-return]
    return [None if value is None else str(value) for value in values.tolist()]


def _written(logged: Logged, name: str) -> Any:
    """A column as it stands in the file, numbers as numbers."""
    values = logged.ids(name)
    if values.dtype.kind != "O" or missing_ids(values).any():
        return values
    numbers = logged.numbers(name)
    return (
        numbers
        if np.isfinite(numbers).all() and not any(isinstance(value, int) for value in values)
        else values
    )


def _respelled(log: Ratings, model: PropensityModel) -> Ratings:
    return replace(
        log, users=spelled_as(log.users, model.users_), items=spelled_as(log.items, model.items_)
    )


def _as_spelled(model: PropensityModel, log: Ratings) -> PropensitiesLike:
    """The model itself where the log's ids are its own, else its values."""
    users, items = spelled_as(log.users, model.users_), spelled_as(log.items, model.items_)
    return (
        model
        if users is log.users and items is log.items
        else model.predict(_respelled(log, model))
    )
