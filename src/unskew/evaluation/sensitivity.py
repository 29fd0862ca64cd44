"""How much a verdict depends on the propensities being right."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from unskew.data.checks import is_finite_number
from unskew.errors import UsageError
from unskew.evaluation.evidence import SOLVED, Evidence
from unskew.evaluation.result import Evaluation
from unskew.evaluation.robustness import Move, Sensitivity, Shift

CLIP_QUANTILES = (0.9, 0.95, 0.99, 1.0)


def sensitivity(
    evaluation: Evaluation,
    *,
    clip: Sequence[float] | None = None,
    odds_error: Sequence[float] = (1.0, 1.1, 1.25, 1.5, 2.0),
) -> Sensitivity:
    """How estimates move when large weights are clipped, and when the propensities' odds are off by up to a factor.

    Clipping puts min(1/P, max_weight) in place of 1/P: a steady curve says that a few large weights do not decide.

    An odds error Gamma >= 1 lets the true odds P / (1 - P) of every observed cell lie anywhere within a factor Gamma of the
    assumed ones, so that each weight w = 1/P lies in [1 + (w - 1) / Gamma, 1 + (w - 1) * Gamma]. ``low`` and ``high`` are the
    exact least and largest estimate that such propensities give, the cells conspiring. ``ci_low`` is the lower confidence limit
    at the propensities that give ``low``, and ``ci_high`` the upper one at those that give ``high``: each end is widened by its
    own standard error, as if its propensities were the true ones.

    Parameters
    ----------
    evaluation
        What :func:`unskew.evaluate` returned, without a weight transform.
    clip
        Largest weights to allow, each at least 1. By default the 90, 95, 99 and 100 % quantiles of the weights.
    odds_error
        Factors Gamma, each at least 1; 1 is the estimate as it stands.

    Examples
    --------
    >>> from unskew.data.ratings import Ratings
    >>> from unskew.evaluation.evaluate import evaluate
    >>> log = Ratings.from_dense([[5, 1, 0], [0, 5, 0]])
    >>> result = evaluate(log, {"fives": np.full(3, 5.0)}, propensities=[0.8, 0.25, 1.0], metrics=["mae"], estimators=["ips"])
    >>> sensitivity(result, clip=[2], odds_error=[1.0, 1.5])
    model  metric  estimator  change      amount    low   high  ci_low  ci_high
    fives  mae     ips        clip         2.000  1.333  1.333  -0.930    3.597
    fives  mae     ips        odds_error   1.000  2.667  2.667  -1.860    7.193
    fives  mae     ips        odds_error   1.500  2.000  3.667  -1.201   10.167
    3 observed cells; 95% intervals, cells independent
    """
    evidence = _evidence(evaluation)
    weighted = [name for name, estimator in evidence.estimators.items() if estimator.is_weighted]
    if not weighted:
        raise UsageError(
            f"there is nothing to vary: {' and '.join(evidence.estimators)} do not weight. "
            "Evaluate with estimators=['snips'], for example."
        )
    clips = _clips(evidence) if clip is None else _amounts("clip", clip)
    factors = _amounts("odds_error", odds_error)
    if not clips and not factors:
        raise UsageError("there is nothing to vary: give clip=[...], odds_error=[...], or both.")
    return Sensitivity(
        models=evaluation.models,
        metrics=evaluation.metrics,
        estimators=tuple(weighted),
        level=evaluation.level,
        n_observed=evaluation.n_observed,
        intervals=evaluation.intervals,
        shifts=tuple(_shifts(evaluation, evidence, weighted, clips, factors)),
        notes=tuple(_notes(evidence)),
        backend=evaluation.backend,
        cells=evidence,
    )


def _evidence(evaluation: object) -> Evidence:
    if not isinstance(evaluation, Evaluation):
        raise UsageError(
            f"sensitivity() asks an Evaluation, the result of evaluate(); got {type(evaluation).__name__}."
        )
    if evaluation.cells is None:
        raise UsageError(
            "this evaluation does not hold the cells it was computed from, so that it cannot be asked again. "
            "Run unskew.evaluate on the log itself."
        )
    if evaluation.cells.sample.transform is not None:
        raise UsageError(
            f"this evaluation's weights are transformed already, by {evaluation.cells.sample.transform!r}. "
            "Evaluate without transform=..., and vary the weights here."
        )
    return evaluation.cells


def _amounts(name: str, given: Sequence[float]) -> list[float]:
    listed = (
        list(given)
        if isinstance(given, (Sequence, np.ndarray)) and not isinstance(given, str)
        else [given]
    )
    for amount in listed:
        if not (is_finite_number(amount) and amount >= 1):
            raise UsageError(
                f"{name} must be a list of finite numbers of at least 1, such as {name}=[2, 10]; got {amount!r}."
            )
    return sorted({float(amount) for amount in listed})


def _clips(evidence: Evidence) -> list[float]:
    return sorted({float(level) for level in np.quantile(evidence.sample.weight, CLIP_QUANTILES)})


def _shifts(
    evaluation: Evaluation,
    evidence: Evidence,
    weighted: Sequence[str],
    clips: Sequence[float],
    factors: Sequence[float],
) -> Iterator[Shift]:
    for metric in evaluation.metrics:
        for place, model in enumerate(evaluation.models):
            for name in weighted:
                question = evidence.question(metric, name, np.eye(len(evaluation.models))[place])
                move = Move((model, metric, name), question, evaluation.level)
                yield from (move.clipped(amount) for amount in clips)
                yield from (move.under(amount) for amount in factors if question.allows_odds_error)


def _notes(evidence: Evidence) -> Iterator[str]:
    for name, estimator in evidence.estimators.items():
        if not estimator.is_weighted:
            yield f"{name} uses no weights, so that nothing moves it"
        elif not isinstance(estimator, SOLVED):
            yield f"the worst case of {name} under an odds error is not known: clipping only"
