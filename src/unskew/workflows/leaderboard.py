"""A leaderboard of all learners on a log and a random test in files."""

from __future__ import annotations

from dataclasses import replace

from unskew.data.ratings import Ratings
from unskew.errors import UsageError
from unskew.io.files import read_table
from unskew.io.log_files import ColumnNames
from unskew.model_selection.leaderboard import Leaderboard, rank_learners
from unskew.model_selection.protocols import LeaderboardData, RandomTestData
from unskew.tables import count_noun
from unskew.workflows import inputs
from unskew.workflows.requests import LeaderboardRequest


def read_test_data(request: LeaderboardRequest) -> LeaderboardData:
    """The log, its propensities if the request names them, and the random test."""
    if request.test is None:
        raise UsageError(
            f"a leaderboard of the log {request.log} needs a test of ratings that were drawn at "
            "random.",
            parameter="test",
            remedy="Pass `test`.",
        )
    table = read_table(inputs.open_log(request))
    column = None
    if request.propensities is not None:
        column = inputs.find_propensity_column(table, request.propensities)
    log = inputs.read_log(request, table, columns=ColumnNames(propensity=column))
    propensities = None
    if request.propensities is not None:
        propensities = inputs.find_propensities(request, log)
    test = _read_test(request, log.ratings)
    data = RandomTestData(log.ratings, test, propensities)
    n_shared = int(data.is_logged().sum())
    description = (
        f"{count_noun(len(log.ratings), 'rating')} in {request.log}, and "
        f"{count_noun(len(test), 'rating')} in {request.test} that are taken as drawn uniformly at "
        f"random, of which {n_shared:,} cells are also in the log."
    )
    return replace(LeaderboardData.of(data, request.log), description=description)


def _read_test(request: LeaderboardRequest, log: Ratings) -> Ratings:
    source = replace(request, log=str(request.test), format=None, universe=None)
    return inputs.match_ids(inputs.read_log(source).ratings, log)


def rank_all_learners(
    data: LeaderboardData, request: LeaderboardRequest, *, verbose: bool = False
) -> Leaderboard:
    """Fit and rank the learners of the request, by default all that are declared."""
    return rank_learners(
        data,
        learners=request.learners or None,
        protocols=request.protocols or None,
        n_repeats=request.n_repeats,
        random_state=request.random_state,
        level=request.level,
        verbose=verbose,
    )
