"""The main call: how far can these propensities be trusted?"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from unskew.data.checks import is_finite_number, whole_number
from unskew.data.propensities import PropensitiesLike
from unskew.data.ratings import Ratings, require_log
from unskew.data.universe import Universe, UniverseLike, resolve_universe
from unskew.diagnostics.balance import Balance
from unskew.diagnostics.calibration import Calibration
from unskew.diagnostics.cells import Chances, Unobserved
from unskew.diagnostics.coverage import Coverage
from unskew.diagnostics.fit import Fit
from unskew.diagnostics.result import Diagnosis, DiagnosisRow
from unskew.diagnostics.sources import Gridded, LoggedOnly, Paired, Source, read_source
from unskew.diagnostics.truth import Accuracy
from unskew.diagnostics.weights import Weights
from unskew.errors import PropensityWarning, UsageError
from unskew.propensity.covariate.covariates import Covariates


def diagnose(
    log: Ratings,
    propensities: Mapping[str, PropensitiesLike] | PropensitiesLike,
    *,
    universe: UniverseLike = None,
    user_features: object = None,
    item_features: object = None,
    true: PropensitiesLike | None = None,
    floor: float | None = None,
    max_cells: int = 4_000_000,
    random_state: int = 0,
) -> Diagnosis:
    """How far propensities can be trusted: their weights, their fit over all cells, the balance they bring, their reach.

    Where something looks wrong, one :class:`PropensityWarning` says all of it, with the numbers; the result lists it too.

    Parameters
    ----------
    log
        The observed ratings.
    propensities
        By name (or one alone): a fitted propensity model, values in the order of the log, or a matrix whose rows are
        ``log.users`` and whose columns are ``log.items``. Fit and calibration compare observed cells with unobserved ones, and so
        need a matrix or a model with ``predict_pairs``; one that looks at ratings, such as naive Bayes, has neither.
    universe
        (n_users, n_items), or ``"log"``; see :func:`unskew.evaluate`. Without it nothing is said of all cells. Fit and
        calibration are over the users and items that the log lists.
    user_features, item_features
        Covariates to compare between the weighted log and all cells: an array or a frame with a row for each of ``log.users``
        (``log.items``), in their order, or a frame with a column of ids. Text becomes a 0/1 column for each value. Columns
        that are the same for everybody are left out.
    true
        The true propensities, where they are known, as values or as a matrix.
    floor
        A propensity below it is next to none; 1/n by default, where one observed cell outweighs a log of n.
    max_cells
        Up to so many cells, each is looked at; of more, every observed one and a uniform sample of the others, with standard
        errors.
    random_state
        Seed of that sample.

    Examples
    --------
    >>> from unskew.simulation.simulate import simulate
    >>> world = simulate(100, 200, random_state=1)
    >>> found = diagnose(world.log, {"true": world.propensities, "uniform": [0.05] * len(world.log)})
    >>> found["uniform"].weights.health.sample_share
    1.0
    """
    require_log(log)
    given = propensities if isinstance(propensities, Mapping) else {"model": propensities}
    named = {str(name): each for name, each in given.items()}
    if not named:
        raise UsageError("there are no propensities to diagnose.")
    seed, most = (
        whole_number("random_state", random_state, least=0),
        whole_number("max_cells", max_cells, least=1),
    )
    size = resolve_universe(log, universe)
    covariates = _covariates(log, user_features, item_features)
    ward = DiagnosisInput(
        log,
        size,
        None if size is None else Unobserved.of(log, max_cells=most, random_state=seed),
        covariates,
        None if true is None else read_source("true", true, log),
        _floor(floor, log),
    )
    checkups = tuple(ward.check(read_source(name, given, log)) for name, given in named.items())
    coverage = Coverage.of(log, size, covariates)
    found = tuple(_complaints(checkups, coverage))
    if found:
        warnings.warn("\n".join(found), PropensityWarning, stacklevel=2)
    return Diagnosis(
        checkups, coverage, size, tuple(ward.notes()) + _notes(checkups), found, log.backend
    )


@dataclass(frozen=True, slots=True, eq=False)
class DiagnosisInput:
    """What every model is held against."""

    log: Ratings
    universe: Universe | None
    unobserved: Unobserved | None
    covariates: Sequence[Covariates]
    true: LoggedOnly | Gridded | Paired | None
    floor: float

    def check(self, source: LoggedOnly | Gridded | Paired) -> DiagnosisRow:
        """Measure all that the source allows."""
        p = source.observed
        chances = self._predict_codes(source)
        n_cells = None if self.universe is None else self.universe.n_cells
        return DiagnosisRow(
            source.name,
            Weights.of(p.inverse, n_cells=n_cells),
            None if chances is None else Fit.of(chances, floor=self.floor),
            None if chances is None else Calibration.of(chances),
            Balance.of(self.log, self.covariates, p.inverse) if self.covariates else None,
            self._accuracy(source, chances),
            (source.reason,) if isinstance(source, LoggedOnly) else (),
        )

    def _predict_codes(self, source: LoggedOnly | Gridded | Paired) -> Chances | None:
        cells = self.unobserved
        if cells is None or isinstance(source, LoggedOnly):
            return None
        unobserved = source.chances(self.log, cells.user, cells.item)
        return Chances(source.observed.values, unobserved, cells.stands_for, cells.is_sample)

    def _accuracy(self, source: Source, chances: Chances | None) -> Accuracy | None:
        if self.true is None:
            return None
        true = self._predict_codes(self.true)
        if chances is None or true is None:
            return Accuracy.over_log(source.observed.values, self.true.observed.values)
        return Accuracy.over_cells(chances, true)

    def notes(self) -> Iterator[str]:
        """How numbers over all cells were made."""
        log, cells = self.log, self.unobserved
        if cells is None or self.universe is None:
            yield "the universe is not known, so that nothing is said of all cells: pass universe=(n_users, n_items)"
        elif self.universe.n_cells > log.n_cells:
            yield f"fit and calibration are over the {Universe(log.n_users, log.n_items)} that the log lists"
        if cells is not None and cells.is_sample:
            yield f"over all cells means all observed ones and a sample of {cells.user.size:,} unobserved ones"


def _covariates(log: Ratings, user_features: object, item_features: object) -> list[Covariates]:
    given = (("user", user_features, log.users), ("item", item_features, log.items))
    return [
        Covariates.of(features, ids, kind, constants="drop")
        for kind, features, ids in given
        if features is not None
    ]  # type: ignore[arg-type]


def _floor(given: float | None, log: Ratings) -> float:
    if given is None:
        return 1.0 / len(log)
    if not (is_finite_number(given) and 0 < given < 1):
        raise UsageError(f"floor must lie strictly between 0 and 1, such as 0.001; got {given!r}.")
    return float(given)


def _complaints(checkups: Sequence[DiagnosisRow], coverage: Coverage) -> Iterator[str]:
    yield from (
        f"{checkup.name}: {complaint}"
        for checkup in checkups
        for complaint in checkup.warning_texts()
    )
    yield from coverage.warning_texts()


def _notes(checkups: Sequence[DiagnosisRow]) -> tuple[str, ...]:
    return tuple(
        f"{each.name}: no fit over all cells, since {note}"
        for each in checkups
        for note in each.notes
    )
