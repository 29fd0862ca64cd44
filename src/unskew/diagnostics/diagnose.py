"""``diagnose``: how far propensities can be trusted."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from unskew.data.estimation import Strata, describe_assumption
from unskew.data.frames import is_frame
from unskew.data.propensities import PropensitiesLike
from unskew.data.ratings import Ratings, require_log
from unskew.data.universe import Universe, UniverseLike, resolve_universe
from unskew.diagnostics.cells import CellPropensities, PropensitySource, UnobservedCells
from unskew.diagnostics.coverage import Coverage
from unskew.diagnostics.fit import Calibration, PropensityAccuracy, PropensityFit
from unskew.diagnostics.planning import plan_random_sample
from unskew.diagnostics.result import Diagnosis, DiagnosisRow
from unskew.diagnostics.specification import run_tests
from unskew.diagnostics.weighting import CovariateBalance, WeightDistribution
from unskew.errors import PropensityWarning, UsageError
from unskew.propensity.covariates import CovariateProfiles
from unskew.settings import Number, WholeNumber, check_random_state
from unskew.types import RandomState

PLANNED_WIDTH = 0.1
"""The planned interval of the mean rating, as a share of the range of the ratings."""


def diagnose(
    log: Ratings,
    propensities: Mapping[str, PropensitiesLike] | PropensitiesLike,
    *,
    universe: UniverseLike = None,
    user_features: object = None,
    item_features: object = None,
    true: PropensitiesLike | None = None,
    mcar: object = None,
    floor: float | None = None,
    max_cells: int = 4_000_000,
    random_state: RandomState = 0,
) -> Diagnosis:
    """Examine the weights of propensities, their fit over all cells, covariate balance, coverage.

    If something looks wrong, one :class:`PropensityWarning` lists it with the numbers. The result
    contains the same list.

    Parameters
    ----------
    log
        The observed ratings. :func:`unskew.diagnose_frame` reads a frame that is larger than
        memory.
    propensities
        By name (or one alone): a fitted propensity model, values in the order of the log, or a
        matrix whose rows are ``log.users`` and whose columns are ``log.items``. Fit and
        calibration compare observed cells with unobserved ones. They need a matrix or a model with
        ``predict_pairs`` that does not use ratings; naive Bayes, for example, uses them.
    universe
        (n_users, n_items), or ``"log"``; see :func:`unskew.evaluate`. Without it nothing is
        computed over all cells. Fit and calibration are over the users and items of the log.
    user_features, item_features
        Covariates to compare between the weighted log and all cells: an array or a frame with a
        row for each of ``log.users`` (``log.items``), in their order, or a frame with a column of
        ids. Text becomes a 0/1 column for each value. Constant columns are ignored.
    true
        The true propensities as values or as a matrix, if they are known.
    mcar
        Ratings of cells that were chosen at random, with their users and items: a log or a frame.
        The weighted mean rating of the log must be theirs; no other check can show that people
        rate what they like.
    floor
        The share of cells with a propensity below ``floor`` is reported. The default is 1/n for a
        log of n ratings: one observed cell with that propensity outweighs the rest of the log.
    max_cells
        With at most this many cells, all are examined. Otherwise every observed cell and a uniform
        sample of the others is, and results have standard errors.
    random_state
        Seed or generator of that sample.

    Returns
    -------
    Diagnosis
        A table with a column of numbers for each model, and curves for plots.

    Examples
    --------
    >>> from unskew.simulation.simulator import simulate
    >>> world = simulate(100, 200, random_state=1)
    >>> uniform = [0.05] * len(world.log)
    >>> diagnosis = diagnose(world.log, {"true": world.propensities, "uniform": uniform})
    >>> diagnosis["uniform"].weights.summary.sample_share
    1.0
    """
    require_log(log, for_frames="diagnose_frame(frame, ...)")
    named = propensities if isinstance(propensities, Mapping) else {"model": propensities}
    if not named:
        raise UsageError(
            "there are no propensities to diagnose.",
            parameter="propensities",
            remedy="Pass at least one model, list of values or matrix.",
        )
    Number(above=0, below=1, allow_none=True)("floor", floor)
    WholeNumber(least=1)("max_cells", max_cells)
    check_random_state("random_state", random_state)
    sample = _read_sample(mcar)
    size = resolve_universe(log, universe)
    unobserved = None
    if size is not None:
        unobserved = UnobservedCells.of(log, max_cells=max_cells, random_state=random_state)
    inputs = DiagnosisInput(
        log=log,
        universe=size,
        unobserved=unobserved,
        covariates=_read_covariates(log, user_features, item_features),
        true=None if true is None else PropensitySource.read("true", true, log),
        floor=1.0 / len(log) if floor is None else float(floor),
        mcar=sample,
        seed=int(np.random.default_rng(random_state).integers(2**31)),
    )
    sources = [PropensitySource.read(str(name), values, log) for name, values in named.items()]
    rows = tuple(inputs.measure(source) for source in sources)
    coverage = Coverage.of(log, size, inputs.covariates)
    signs = warn_of_problems(rows, coverage)
    notes = (*inputs.notes(), *_limitations(rows), *_next_step(log, rows, sample))
    return Diagnosis(rows, coverage, size, notes, signs, log.backend)


def warn_of_problems(rows: Sequence[DiagnosisRow], coverage: Coverage) -> tuple[str, ...]:
    """What looks wrong, as texts; one warning lists all of it."""
    signs = [*_model_warnings(rows), *coverage.warnings()]
    if signs:
        texts = [f"{sign.problem} {sign.remedy}".rstrip() for sign in signs]
        warnings.warn(PropensityWarning("\n".join(texts)), stacklevel=3)
    return tuple(map(str, signs))


@dataclass(frozen=True, slots=True, eq=False)
class DiagnosisInput:
    """What the propensities of every model are compared with."""

    log: Ratings
    universe: Universe | None
    unobserved: UnobservedCells | None
    covariates: Sequence[CovariateProfiles]
    true: PropensitySource | None
    floor: float
    mcar: Ratings | None
    seed: int
    """Of the halves into which tests divide the log: the same for every model."""

    def measure(self, source: PropensitySource) -> DiagnosisRow:
        """Everything that can be computed with the propensities of this source."""
        weight = source.observed.inverse
        n_cells = None if self.universe is None else self.universe.n_cells
        balance = None
        if self.covariates:
            balance = CovariateBalance.of(self.log, self.covariates, weight)
        cells, estimation = self._predict(source), source.observed.estimation
        return DiagnosisRow(
            name=source.name,
            weights=WeightDistribution.of(
                weight, n_cells=n_cells, is_balanced=isinstance(estimation, Strata)
            ),
            fit=None if cells is None else PropensityFit.of(cells, floor=self.floor),
            calibration=None if cells is None else Calibration.of(cells),
            balance=balance,
            accuracy=self._compare_with_true(source, cells),
            tests=run_tests(
                self.log,
                source.observed,
                self.universe,
                self.mcar,
                np.random.default_rng(self.seed),
            ),
            assumption=describe_assumption(estimation),
            sees_ratings=None if estimation is None else estimation.sees_ratings,
            limitation=source.limitation,
        )

    def _predict(self, source: PropensitySource) -> CellPropensities | None:
        return None if self.unobserved is None else self.unobserved.predict(source, self.log)

    def _compare_with_true(
        self, source: PropensitySource, cells: CellPropensities | None
    ) -> PropensityAccuracy | None:
        if self.true is None:
            return None
        true_cells = self._predict(self.true)
        if cells is None or true_cells is None:
            return PropensityAccuracy.over_log(source.observed.values, self.true.observed.values)
        return PropensityAccuracy.over_cells(cells, true_cells)

    def notes(self) -> Iterator[str]:
        """How numbers over all cells were computed."""
        log, unobserved = self.log, self.unobserved
        if self.universe is None or unobserved is None:
            yield (
                "the universe is unknown, so nothing was computed over all cells; "
                "pass universe=(n_users, n_items)"
            )
            return
        if self.universe.n_cells > log.n_cells:
            listed = Universe(log.n_users, log.n_items)
            yield f"fit and calibration are over the {listed} of the log"
        if unobserved.is_sample:
            yield (
                "numbers over all cells use all observed cells "
                f"and a sample of {unobserved.user.size:,} unobserved ones"
            )


def _read_covariates(
    log: Ratings, user_features: object, item_features: object
) -> list[CovariateProfiles]:
    covariates = []
    if user_features is not None:
        covariates.append(
            CovariateProfiles.read(user_features, log.users, "user", constants="drop")
        )
    if item_features is not None:
        covariates.append(
            CovariateProfiles.read(item_features, log.items, "item", constants="drop")
        )
    return covariates


def _model_warnings(rows: Sequence[DiagnosisRow]) -> Iterator[PropensityWarning]:
    for row in rows:
        for sign in row.warnings():
            yield PropensityWarning(f"{row.name}: {sign.problem}", remedy=sign.remedy)


def _read_sample(mcar: object) -> Ratings | None:
    if mcar is None or isinstance(mcar, Ratings):
        return mcar
    if not is_frame(mcar):
        raise UsageError(
            "`mcar` must name the user and item of each random rating: a log or a data frame; got "
            f"{type(mcar).__name__}.",
            parameter="mcar",
            remedy="Pass Ratings.from_arrays(users, items, ratings).",
        )
    return Ratings.from_frame(mcar)


def _next_step(log: Ratings, rows: Sequence[DiagnosisRow], mcar: Ratings | None) -> Iterator[str]:
    """How many random ratings would answer what these propensities cannot tell."""
    width = PLANNED_WIDTH * float(np.ptp(log.rating))
    if mcar is not None or width == 0 or any(row.sees_ratings for row in rows):
        return
    plan = plan_random_sample(log, width=width)
    if plan.n_ratings is not None:
        yield (
            "to find out whether people rate what they like, collect ratings of random cells: "
            f"{plan.n_ratings:,} of them give the mean rating of all cells within "
            f"{width / 2:.2g} (plan_random_sample)"
        )


def _limitations(rows: Sequence[DiagnosisRow]) -> Iterator[str]:
    for row in rows:
        if row.limitation:
            yield f"{row.name}: no fit over all cells, because {row.limitation}"
