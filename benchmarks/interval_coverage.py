"""How often a nominal 95 % interval contains the true value, and how often equal models differ.

    python benchmarks/interval_coverage.py                        # all cases, 2,000 logs each
    python benchmarks/interval_coverage.py --only nb --logs 300   # cases whose name has "nb"
    python benchmarks/interval_coverage.py --minutes 10           # as many logs as fit in 10 min
    python benchmarks/interval_coverage.py --only movielens       # needs $UNSKEW_DATA
    python benchmarks/interval_coverage.py --only ranking         # metrics of rankings
    python benchmarks/interval_coverage.py --save counts.jsonl    # keep and reuse finished batches
    python benchmarks/interval_coverage.py --metrics precision@10 # fewer metrics, which is faster

Each case draws many logs from one rating matrix whose truth is known, estimates the propensities
again from every log, and calls ``unskew.evaluate``. "a" and "b" are two models whose mean losses
over all cells are equal, because b has the errors of a in another order: a paired comparison
should tell them apart in 5 % of the logs. "c" predicts a constant. The table has the lowest and
the highest coverage over models and metrics. ``--cluster`` replaces the clusters that match the
world, for example by the default of ``evaluate``, auto; the table then says how often it added
items.

Cases with "dr" have imputed ratings: the true ones plus noise ("given"), or those of user and item
means that were fitted without the fold of each cell ("folds"). Cases with "refit" have propensity
models that are fitted again to 20 pairs of halves of each log, which takes minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import warnings
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from ranking_coverage import WORLDS, print_world
from threadpoolctl import threadpool_limits

import unskew
from unskew.evaluation import Imputation
from unskew.propensity import OneBitPropensity, PoissonPropensity, PopularityPropensity

Cells = npt.NDArray[np.float64]
LEVEL = 0.95
METRICS = ("mse", "mae", "precision@10", "dcg@10")
WEIGHTED = ("ips", "snips")
DOUBLY_ROBUST = ("dr", "sndr")
N_FOLDS = 3
BATCH = 50
"""Logs with one seed."""
SHARES_BY_RATING = np.array([0, 0.02, 0.03, 0.06, 0.12, 0.20])
ML_SIZE = (500, 250)
"""Random users and items of completed MovieLens; all of them would take hours."""


@dataclass(frozen=True)
class World:
    """A complete rating matrix, the probability of each cell, and what selects cells."""

    truth: Cells
    propensity: Cells
    user_shock: float = 0.0
    """Coefficient of variation of a factor that all cells of a user share, drawn for each log."""
    item_shock: float = 0.0
    user_features: Cells | None = None
    item_features: Cells | None = None

    def draw(self, rng: np.random.Generator) -> npt.NDArray[np.bool_]:
        """Which cells one log has."""
        n_users, n_items = self.truth.shape
        factor = _shocks(rng, self.user_shock, (n_users, 1)) * _shocks(
            rng, self.item_shock, (1, n_items)
        )
        seen: npt.NDArray[np.bool_] = rng.random(self.truth.shape) < self.propensity * factor
        return seen


def _shocks(rng: np.random.Generator, variation: float, shape: tuple[int, int]) -> Any:
    if variation == 0:
        return 1.0
    return np.minimum(rng.gamma(variation**-2, variation**2, shape), 4.0)


@cache
def rating_matrix(n_users: int = 400, n_items: int = 100) -> Cells:
    rng = np.random.default_rng(0)
    utility = (
        0.5 * rng.normal(size=(n_users, 1))
        + 0.6 * rng.normal(size=(1, n_items))
        + rng.normal(size=(n_users, n_items))
    )
    return np.clip(np.round(2.8 + 1.1 * utility), 1, 5)


@cache
def by_rating() -> World:
    truth = rating_matrix()
    return World(truth, SHARES_BY_RATING[truth.astype(int)])


@cache
def by_rating_with_shocks() -> World:
    return replace(by_rating(), user_shock=0.5, item_shock=0.5)


@cache
def by_rating_with_user_shocks() -> World:
    return replace(by_rating(), user_shock=0.5)


@cache
def by_rating_with_item_shocks() -> World:
    return replace(by_rating(), item_shock=0.5)


@cache
def by_factors() -> World:
    """P = 1 - exp(-s_u . t_i) with two positive factors, as Poisson propensities assume."""
    truth, rng = rating_matrix(150, 60), np.random.default_rng(4)
    user, item = (0.1 + rng.gamma(2.0, 0.15, size=(n, 2)) for n in truth.shape)
    return World(truth, 1 - np.exp(-user @ item.T))


@cache
def by_logits(relation: float = 0.0) -> World:
    """Logits of rank 1, as one-bit propensities assume; ``relation`` is their share in ratings."""
    truth, rng = rating_matrix(150, 60), np.random.default_rng(6)
    product = 0.8 * rng.normal(size=(150, 1)) * rng.normal(size=(1, 60))
    truth = np.clip(np.round(truth + relation * product), 1, 5)
    return World(truth, 1 / (1 + np.exp(1.4 - product)))


@cache
def by_item() -> World:
    truth, rng = rating_matrix(), np.random.default_rng(1)
    share = np.clip(0.08 * np.exp(0.6 * rng.normal(size=(1, truth.shape[1]))), 0.02, 0.5)
    return World(truth, np.broadcast_to(share, truth.shape))


@cache
def by_user_and_item() -> World:
    truth, rng = rating_matrix(), np.random.default_rng(2)
    user = np.exp(0.4 * rng.normal(size=(truth.shape[0], 1)))
    item = np.exp(0.5 * rng.normal(size=(1, truth.shape[1])))
    return World(truth, np.clip(0.08 * user * item, 0.0, 0.9))


@cache
def by_covariates(offset: float = 0.0) -> World:
    truth, rng = rating_matrix(200, 100), np.random.default_rng(3)
    users, items = rng.normal(size=(200, 3)), rng.normal(size=(100, 3))
    logit = -2.2 + 0.4 * users @ [1, 0.5, -0.5]
    logit = logit[:, None] + 0.4 * (items @ [1, -0.5, 0.5])
    logit = logit + offset * rng.normal(size=(200, 1)) + offset * rng.normal(size=(1, 100))
    return World(truth, 1 / (1 + np.exp(-logit)), user_features=users, item_features=items)


@cache
def movielens() -> World:
    from unskew.paper.completion import find_ground_truth

    completed, rng = find_ground_truth(os.environ["UNSKEW_DATA"]).ratings, np.random.default_rng(4)
    users, items = (
        rng.permutation(n)[:size] for n, size in zip(completed.shape, ML_SIZE, strict=True)
    )
    truth = np.clip(np.round(completed[np.ix_(users, items)].astype(np.float64)), 1, 5)
    return World(truth, SHARES_BY_RATING[truth.astype(int)])


@dataclass(frozen=True)
class Draw:
    """One log of a world."""

    world: World
    log: unskew.Ratings
    seen: npt.NDArray[np.bool_]
    rng: np.random.Generator


Fit = Callable[[Draw], Any]


def take_known(draw: Draw) -> Any:
    return draw.world.propensity[draw.seen]


def fit_naive_bayes(size: int) -> Fit:
    def fit(draw: Draw) -> Any:
        sample = draw.rng.choice(draw.world.truth.ravel(), size, replace=False)
        return unskew.NaiveBayesPropensity().fit(draw.log, mcar=sample)

    return fit


def fit_naive_bayes_by_users(size: int, per_user: int = 10) -> Fit:
    def fit(draw: Draw) -> Any:
        n_users, n_items = draw.world.truth.shape
        n_sampled = size // per_user
        user = np.repeat(draw.rng.choice(n_users, n_sampled, replace=False), per_user)
        item = np.concatenate(
            [draw.rng.choice(n_items, per_user, replace=False) for _ in range(n_sampled)]
        )
        sample = unskew.Ratings.from_arrays(user, item, draw.world.truth[user, item])
        return unskew.NaiveBayesPropensity().fit(draw.log, mcar=sample)

    return fit


def fit_popularity(by: Any) -> Fit:
    return lambda draw: PopularityPropensity(by).fit(draw.log)


def fit_logistic(ridge: float, *, offsets: bool) -> Fit:
    def fit(draw: Draw) -> Any:
        return unskew.LogisticPropensity(
            draw.world.user_features,
            draw.world.item_features,
            interactions="none",
            user_offsets=offsets,
            item_offsets=offsets,
            ridge=ridge,
        ).fit(draw.log)

    return fit


def fit_poisson(draw: Draw) -> Any:
    return PoissonPropensity(n_factors=2).fit(draw.log)


def fit_one_bit(draw: Draw) -> Any:
    return OneBitPropensity(n_factors=2, noise_multiple=0.25).fit(draw.log)


Impute = Callable[[Draw], dict[str, Any]]
"""The arguments of ``evaluate`` that say what the imputed ratings are."""


def impute_given(draw: Draw) -> dict[str, Any]:
    noise = np.random.default_rng(5).normal(size=draw.world.truth.shape)
    return {"imputation": Imputation(draw.world.truth + 0.8 * noise, is_independent=True)}


def impute_by_folds(draw: Draw) -> dict[str, Any]:
    """Means of users and items, each cell without the ratings of its fold."""
    folds = draw.rng.integers(0, N_FOLDS, int(draw.seen.sum()))
    models = {}
    for fold in range(N_FOLDS):
        is_kept = np.zeros(draw.seen.shape, dtype=bool)
        is_kept[draw.seen] = folds != fold
        models[fold] = predict_by_means(draw.world.truth, is_kept)
    return {"imputation": Imputation(models, folds)}


def predict_by_means(rating: Cells, is_kept: npt.NDArray[np.bool_], prior: float = 3.0) -> Cells:
    """Overall mean + user effect + item effect, shrunk as if by ``prior`` average ratings."""
    mean = float(rating[is_kept].mean())
    residual = np.where(is_kept, rating - mean, 0.0)
    item = residual.sum(axis=0) / (is_kept.sum(axis=0) + prior)
    rest = np.where(is_kept, residual - item, 0.0)
    user = rest.sum(axis=1) / (is_kept.sum(axis=1) + prior)
    return mean + user[:, None] + item[None, :]


@dataclass(frozen=True)
class Case:
    world: Callable[[], World]
    fit: Fit
    cluster: str | None = None
    """The clusters that match the world."""
    estimators: tuple[str, str] = WEIGHTED
    impute: Impute | None = None


CASES = {
    "known": Case(by_rating, take_known),
    **{f"nb-{m}": Case(by_rating, fit_naive_bayes(m)) for m in (50, 100, 300, 1_000, 10_000)},
    **{
        f"nb-users-{m}": Case(by_rating, fit_naive_bayes_by_users(m))
        for m in (100, 300, 1_000, 3_000)
    },
    "known-shocks": Case(by_rating_with_shocks, take_known, "both"),
    "known-user-shocks": Case(by_rating_with_user_shocks, take_known, "user"),
    "known-item-shocks": Case(by_rating_with_item_shocks, take_known, "item"),
    "nb-1000-shocks": Case(by_rating_with_shocks, fit_naive_bayes(1_000), "both"),
    "nb-1000-item-shocks": Case(by_rating_with_item_shocks, fit_naive_bayes(1_000), "item"),
    "popularity-item": Case(by_item, fit_popularity("item")),
    "popularity-both": Case(by_user_and_item, fit_popularity("both")),
    "logistic": Case(by_covariates, fit_logistic(0.0, offsets=False)),
    "logistic-ridge": Case(by_covariates, fit_logistic(10.0, offsets=False)),
    "logistic-offsets": Case(lambda: by_covariates(0.3), fit_logistic(0.3, offsets=True)),
    **{
        f"dr-{source}-{name}": Case(world, fit, cluster, DOUBLY_ROBUST, impute)
        for source, impute in (("given", impute_given), ("folds", impute_by_folds))
        for name, world, fit, cluster in (
            ("known", by_rating, take_known, None),
            ("nb-300", by_rating, fit_naive_bayes(300), None),
            ("logistic", by_covariates, fit_logistic(0.0, offsets=False), None),
            ("known-shocks", by_rating_with_shocks, take_known, "both"),
        )
    },
    "refit-poisson": Case(by_factors, fit_poisson),
    "refit-onebit": Case(by_logits, fit_one_bit),
    "refit-onebit-related": Case(lambda: by_logits(0.6), fit_one_bit),
    "movielens-known": Case(movielens, take_known),
    "movielens-nb-100": Case(movielens, fit_naive_bayes(100)),
    "movielens-nb-1000": Case(movielens, fit_naive_bayes(1_000)),
}


@dataclass
class Counts:
    n_logs: int = 0
    n_with_items: int = 0
    """Logs whose intervals use clusters of items."""
    covered: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    claimed: dict[str, int] = field(default_factory=lambda: defaultdict(int))


def predict(truth: Cells) -> dict[str, Cells]:
    """Models a and b with equal losses, and a constant c."""
    rng = np.random.default_rng(7)
    error = rng.normal(size=truth.shape) + 0.4 * (truth - 3)
    shuffled = rng.permutation(error.ravel()).reshape(error.shape)
    return {"a": truth + error, "b": truth + shuffled, "c": np.full(truth.shape, 3.2)}


def true_risks(truth: Cells, models: dict[str, Cells]) -> dict[tuple[str, str], float]:
    risks = {}
    for name, scores in models.items():
        top = np.argsort(np.argsort(-scores, axis=1, kind="stable"), axis=1) < 10
        risks[name, "mse"] = float(np.square(scores - truth).mean())
        risks[name, "mae"] = float(np.abs(scores - truth).mean())
        position = np.argsort(np.argsort(-scores, axis=1, kind="stable"), axis=1) + 1
        discount = np.where(top, 1 / np.log2(position + 1), 0.0)
        risks[name, "dcg@10"] = float((discount * truth).sum(axis=1).mean())
        risks[name, "precision@10"] = float((truth >= 4)[top].mean())
    return risks


def run(
    name: str,
    seed: int,
    n_logs: int,
    cluster: str | None,
    metrics: tuple[str, ...] = METRICS,
    deadline: float = np.inf,
) -> Counts:
    """Draw logs and count intervals that contain the truth, and claims about equal models.

    After the ``deadline`` a batch is not begun; a begun one is finished, so that no log is left
    out because it takes long.
    """
    warnings.simplefilter("ignore")
    case, counts = CASES[name], Counts()
    if time.monotonic() > deadline:
        return counts
    world = case.world()
    models = predict(world.truth)
    risks = true_risks(world.truth, models)
    n_users, n_items = world.truth.shape
    rng = np.random.default_rng([seed, sum(map(ord, name))])
    for _ in range(n_logs):
        seen = world.draw(rng)
        user, item = np.nonzero(seen)
        log = unskew.Ratings.from_codes(
            user, item, world.truth[seen], shape=(n_users, n_items)
        ).with_universe((n_users, n_items))
        draw = Draw(world, log, seen, rng)
        result = unskew.evaluate(
            log,
            models,
            propensities=case.fit(draw),
            metrics=metrics,
            estimators=case.estimators,
            **({} if case.impute is None else case.impute(draw)),
            relevance_threshold=4,
            cluster=cluster if cluster != "match" else case.cluster,
        )
        counts.n_logs += 1
        counts.n_with_items += "item" in result.intervals
        for risk in result:
            if risk.model != "c" or not risk.metric.endswith("@10"):
                truth = risks[risk.model, risk.metric]
                key = f"{risk.estimator} {risk.metric} {risk.model}"
                counts.covered[key] += risk.ci_low <= truth <= risk.ci_high
        for estimator in case.estimators:
            for metric in set(metrics) & {"mse", "mae"}:
                pair = result.compare("a", "b", metric=metric, estimator=estimator)
                counts.claimed[f"{estimator} {metric}"] += pair.better is not None
    return counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--logs", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--only", default="", help="cases whose name has one of these texts, separated by commas"
    )
    parser.add_argument("--cluster", default="match", help="match, auto, user, item, both or cell")
    parser.add_argument("--metrics", default=",".join(METRICS), help="some of these")
    parser.add_argument("--minutes", type=float, default=np.inf, help="begin no batch after this")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--json", action="store_true", help="every count")
    parser.add_argument(
        "--save", type=Path, help="a file of counts: finished batches are added, and not run again"
    )
    options = parser.parse_args()
    cluster = None if options.cluster == "cell" else options.cluster
    parts = options.only.split(",")
    names = [name for name in CASES if any(is_named(name, part) for part in parts)]
    if "UNSKEW_DATA" not in os.environ:
        names = [name for name in names if not name.startswith("movielens")]
    if names:
        print(
            "| case | logs (noise) | clusters | ips/dr | snips/sndr "
            "| equal models differ: ips/dr | snips/sndr | s |"
        )
        print("|---|---|---|---|---|---|---|---|")
    for name in names:
        CASES[name].world()  # once, before the processes share it
        start = time.perf_counter()
        counts = run_batches(name, cluster, options)
        print_case(name, cluster, counts, time.perf_counter() - start, as_json=options.json)
    for name in WORLDS:
        if any(part in name for part in parts):
            print_world(name, options.logs, options.seed)


def is_named(case: str, part: str) -> bool:
    """Whether a case is meant by its name, or by a part of it that is no name of a case."""
    return case == part or (part not in CASES and part in case)


def run_batches(name: str, cluster: str | None, options: argparse.Namespace) -> list[Counts]:
    """The counts of batches of logs, until there are enough or the time is over."""
    deadline = time.monotonic() + 60 * options.minutes
    n_batches = -(-options.logs // BATCH)
    sizes = [min(BATCH, options.logs - batch * BATCH) for batch in range(n_batches)]
    batches = {(options.seed * 1000 + batch, size) for batch, size in enumerate(sizes)}
    metrics = tuple(options.metrics.split(","))
    saved = read_counts(options.save, name, cluster, metrics)
    counts = [saved[batch] for batch in sorted(batches & set(saved))]
    with ProcessPoolExecutor(options.jobs, initializer=threadpool_limits, initargs=(1,)) as pool:
        running = {
            pool.submit(run, name, seed, size, cluster, metrics, deadline): (seed, size)
            for seed, size in sorted(batches - set(saved))
        }
        for finished in as_completed(running):
            batch = finished.result()
            counts.append(batch)
            if options.save is not None and batch.n_logs:
                save_counts(options.save, name, cluster, metrics, running[finished], batch)
    return [batch for batch in counts if batch.n_logs]


def read_counts(
    path: Path | None, name: str, cluster: str | None, metrics: tuple[str, ...]
) -> dict[tuple[int, int], Counts]:
    """The saved counts of a case, by seed and number of logs."""
    if path is None or not path.exists():
        return {}
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return {
        (line["seed"], line["size"]): Counts(**line["counts"])
        for line in lines
        if (line["case"], line["cluster"]) == (name, cluster)
        and tuple(line.get("metrics", METRICS)) == metrics
    }


def save_counts(
    path: Path,
    name: str,
    cluster: str | None,
    metrics: tuple[str, ...],
    batch: tuple[int, int],
    counts: Counts,
) -> None:
    seed, size = batch
    line = {"case": name, "cluster": cluster, "metrics": metrics, "seed": seed, "size": size}
    line["counts"] = vars(counts)
    with path.open("a") as file:
        file.write(json.dumps(line) + "\n")


def print_case(
    name: str, cluster: str | None, parts: list[Counts], seconds: float, *, as_json: bool
) -> None:
    if not parts:
        return
    n_logs = sum(part.n_logs for part in parts)
    covered = {key: sum(p.covered[key] for p in parts) / n_logs for key in parts[0].covered}
    claimed = {key: sum(p.claimed[key] for p in parts) / n_logs for key in parts[0].claimed}
    if as_json:
        counts = {"case": name, "logs": n_logs, "covered": covered, "claimed": claimed}
        print(json.dumps(counts), file=sys.stderr)
    cells = []
    for shares in (covered, claimed):
        for estimator in CASES[name].estimators:
            values = [v for key, v in shares.items() if key.startswith(f"{estimator} ")]
            cells.append(f"{min(values):.1%} to {max(values):.1%}" if values else "none")
    used = CASES[name].cluster if cluster == "match" else cluster
    if used == "auto":
        used = f"auto, items in {sum(part.n_with_items for part in parts) / n_logs:.0%}"
    noise = 1.96 * np.sqrt(LEVEL * (1 - LEVEL) / n_logs)
    print(
        f"| {name} | {n_logs:,} (±{noise:.1%}) | {used or 'cell'} | {' | '.join(cells)} "
        f"| {seconds:.0f} |",
        flush=True,
    )


if __name__ == "__main__":
    main()
