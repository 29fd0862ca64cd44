"""Table 2: systems trained on ratings that people chose, judged on ratings of uniformly random cells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from unskew.data.ratings import Ratings
from unskew.datasets.coat import load_coat
from unskew.datasets.location import PathLike
from unskew.datasets.yahoo_r3 import load_yahoo_r3
from unskew.errors import DatasetNotFoundError
from unskew.evaluation.evaluate import evaluate
from unskew.evaluation.result import Evaluation
from unskew.paper.reproduction import Reproduction
from unskew.paper.table2_rows import CAPTION, FLOORS, Judged, Outcome, rows_of, summarize, tabulate
from unskew.paper.table2_systems import (
    METRICS,
    SYSTEMS,
    Grid,
    Metric,
    System,
    Task,
    Trained,
    coat_task,
    yahoo_task,
)
from unskew.progress import Track, no_progress

PAPER_GRID: Grid = {
    "l2": (0.008, 0.04, 0.2, 1, 5, 25, 125),
    "n_factors": (5, 10, 20, 40),
    "offsets": ("free", "regularized"),
}
"""The authors' grid; their code has it, the paper prints another."""
N_RESAMPLES = 1000


def table2(
    *,
    data: PathLike = None,
    trials: int = 1,
    seed: int = 0,
    grid: Grid = PAPER_GRID,
    systems: Mapping[str, Sequence[System]] = SYSTEMS,
    track: Track = no_progress,
) -> Reproduction:
    """MSE and MAE of every system on Coat, and on Yahoo! R3 where ``data`` (or ``$UNSKEW_DATA``) has a licensed copy of it.

    Factorisations are chosen by four-fold IPS cross-validation of the metric that they are trained for. 5 % of the test go to
    the systems that need random ratings, and these are then judged on the rest. The trials differ in their seeds (``seed``,
    ``seed + 1``, ...), which decide the folds, where the fits start and the 5 %; the data are the same.
    """
    tasks = _tasks(data)
    jobs = [
        (task, system, each)
        for task in tasks
        for system in systems[task.name]
        for each in range(seed, seed + trials)
    ]
    trained = {
        (task.name, system.title, each): system.train(task, each, grid)
        for task, system, each in track(jobs, label="Table 2", total=len(jobs))
    }
    outcomes = [
        Outcome(
            task,
            tuple(systems[task.name]),
            tuple(
                _judge(
                    task,
                    each,
                    {
                        system.title: trained[task.name, system.title, each]
                        for system in systems[task.name]
                    },
                )
                for each in range(seed, seed + trials)
            ),
        )
        for task in tasks
    ]
    rows = [row for outcome in outcomes for row in rows_of(outcome)]
    return Reproduction(
        "table2", trials, seed, rows, tabulate(outcomes), summarize(outcomes), CAPTION, unit="trial"
    )


def _tasks(data: PathLike) -> list[Task]:
    try:
        return [coat_task(load_coat(data)), yahoo_task(load_yahoo_r3(data))]
    except DatasetNotFoundError as error:
        if "Yahoo" not in str(error):
            raise
    return [coat_task(load_coat(data))]


def _judge(task: Task, seed: int, trained: Mapping[str, Mapping[Metric, Trained]]) -> Judged:
    """Every model on every test, whoever may be judged there."""
    models = {
        f"{title}, for {metric}": one.model
        for title, by_metric in trained.items()
        for metric, one in by_metric.items()
    }
    tests = {name: task.test.take(cells) for name, cells in task.cells(seed).items()}
    return Judged(
        seed, trained, {name: _errors(models, task, test, seed) for name, test in tests.items()}
    )


def _errors(
    models: Mapping[str, object], task: Task, test: Ratings, seed: int
) -> tuple[Evaluation, Evaluation]:
    """Plain averages over a test that was drawn uniformly, by clusters and by resampling of users."""
    constants = (task.train.rating.mean(), test.rating.mean(), np.median(test.rating))
    floors = {
        name: np.full(len(test), value) for name, value in zip(FLOORS, constants, strict=True)
    }
    predicted = {
        name: model.predict(test.users[test.user], test.items[test.item])
        for name, model in models.items()
    }  # type: ignore[attr-defined]
    settings = {"metrics": METRICS, "estimators": ["naive"], "cluster": "user"}
    clustered = evaluate(test, predicted | floors, **settings)  # type: ignore[arg-type]
    resampled = evaluate(
        test, predicted | floors, **settings, bootstrap=N_RESAMPLES, random_state=seed
    )  # type: ignore[arg-type]
    return clustered, resampled
