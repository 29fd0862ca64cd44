"""What cross-validation loses against the oracle, by score and rule, on worlds with a known truth.

    python benchmarks/selection.py [--seeds 5] [--worlds NAME ...] [--json FILE]

A log is drawn from a complete matrix. A matrix factorisation chooses among the penalties and
offsets of the leaderboard's grid by cross-validation. The regret is the mean squared error over all
cells of what it chose, minus that of the best settings of the grid, in percent of the latter. The
median regret of a random choice is the row "random". Propensities are the true ones ("known"),
those of naive Bayes with 500 random ratings ("naive Bayes"), or those of a model of popularity that
does not see ratings ("popularity"). Every score and rule is computed from the same fits.
"""

from __future__ import annotations

import argparse
import json
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

import unskew
from unskew.data.propensities import as_propensities
from unskew.model_selection.combinations import combine_settings, fit_path, group_paths
from unskew.model_selection.folds import LocalTraining, split
from unskew.model_selection.grids import L2, OFFSETS
from unskew.model_selection.rules import choose
from unskew.model_selection.scores import FoldScorer, SettingScores
from unskew.models.matrix_factorization import MatrixFactorization
from unskew.propensity.naive_bayes import NaiveBayesPropensity
from unskew.propensity.popularity import PopularityPropensity
from unskew.simulation.observation import ByCovariates, ByRating, Observation
from unskew.threads import Workers

SIZE, DENSITY, N_RANDOM = (200, 150), 0.1, 500
WORLDS = {
    "strong selection by rating": lambda _: ByRating(0.25),
    "weak selection by rating": lambda _: ByRating(0.7),
    "selection by popularity": lambda seed: ByCovariates.long_tail(
        *SIZE, skew=0.25, random_state=seed
    ),
}
SCORES = ("naive", "ips", "snips", "dr")
N_FOLDS, N_REPEATS = 4, 3
MODEL = MatrixFactorization(tol=1e-5, n_threads=1)


@dataclass(frozen=True, slots=True, eq=False)
class Replay(FoldScorer):
    """A scorer that reads scores which were computed before."""

    known: Any = None
    """By id of the settings: scores by the number of the fold."""

    def score(self, contenders: Any, folds: Any) -> None:
        for number in folds:
            for each in contenders:
                each.scores[number] = self.known[id(each.settings)][number]


def draw(world: str, seed: int) -> tuple[Any, Any, dict[str, Any]]:
    """The truth, a log, and propensities of each kind."""
    truth = unskew.simulate(*SIZE, noise=1.0, random_state=seed).truth
    rng = np.random.default_rng((seed, 21))
    log, known = Observation.of(truth, WORLDS[world](seed), density=DENSITY).draw(rng)
    sample = truth.ravel()[rng.integers(truth.size, size=N_RANDOM)].astype(np.float64)
    bayes = NaiveBayesPropensity().fit(log, mcar=sample)
    kinds = {"known": known, "naive Bayes": bayes, "popularity": PopularityPropensity().fit(log)}
    return truth, log, {name: as_propensities(log, each) for name, each in kinds.items()}


def predict_all(model: Any, shape: tuple[int, int]) -> np.ndarray:
    user, item = np.divmod(np.arange(shape[0] * shape[1]), shape[1])
    return model.predict(user, item, on_unknown="fallback").reshape(shape)


def measure(truth: Any, log: Any, propensities: Any, seed: int) -> list[dict[str, Any]]:
    """The regret of every score and rule."""
    combinations = combine_settings(MODEL, {"l2": L2, "offsets": OFFSETS})
    paths = list(group_paths(combinations))
    risk = {
        id(fit.settings): float(np.square(truth - predict_all(fit.model, truth.shape)).mean())
        for path in paths
        for fit in fit_path(MODEL, path, LocalTraining(log, propensities))
    }
    known: dict[str, dict[int, list[float]]] = {
        score: {id(each): [] for each in combinations} for score in SCORES
    }
    folds = [
        fold
        for repeat in range(N_REPEATS)
        for fold in split(
            log,
            propensities,
            n_folds=N_FOLDS,
            random_state=1000 * seed + repeat,
            imputer=MatrixFactorization(n_threads=1),
        )
    ]
    for fold in folds:
        for path in paths:
            for fit in fit_path(MODEL, path, fold.training):
                for score in SCORES:
                    value = fold.score(fit.model, metric="mse", estimator=score)
                    known[score][id(fit.settings)].append(value)
    least = min(risk.values())
    rows = [{"score": "random", "rule": "", "regret": np.median(list(risk.values())) / least - 1}]
    for score in SCORES:
        errors, means = (
            [risk[id(each)] for each in combinations],
            [np.mean(known[score][id(each)]) for each in combinations],
        )
        correlation = float(stats.spearmanr(errors, means).statistic)
        for rule, repeats, halving in (
            ("best", 1, False),
            ("best", 1, True),
            ("best", N_REPEATS, False),
            ("one_standard_error", 1, False),
            ("one_standard_error", N_REPEATS, False),
        ):
            chosen = replay(combinations, known[score], rule, folds[: repeats * N_FOLDS], halving)
            name = f"{rule}, {repeats} x {N_FOLDS} folds{', halving' if halving else ''}"
            regret = risk[id(chosen)] / least - 1
            level = np.mean(known[score][id(chosen)]) / risk[id(chosen)] - 1
            row = {"score": score, "rule": name, "regret": regret, "level": float(level)}
            rows.append(row | {"rank_correlation": correlation})
    return rows


def replay(combinations: Any, known: Any, rule: Any, folds: Any, halving: bool) -> Any:
    """The settings that cross_validate would choose from these scores."""
    scorer = Replay(MODEL, folds, "mse", "ips", False, Workers(1), known=known)
    contenders = [SettingScores(settings) for settings in combinations]
    if halving:
        scorer.score_by_halving(contenders)
    else:
        scorer.score(contenders, range(len(folds)))
    return choose(scorer.sort(contenders), rule, n_folds=N_FOLDS).settings


def print_table(rows: list[dict[str, Any]]) -> None:
    """Mean regret in percent with half its 95 % interval over draws, in Markdown."""
    kinds = list(dict.fromkeys((row["world"], row["propensities"]) for row in rows))
    print("| world | propensities | score |", end="")
    rules = list(dict.fromkeys(row["rule"] for row in rows if row["rule"]))
    print(" | ".join(rules), "| rank correlation | level |")
    print("|---" * (len(rules) + 5) + "|")
    for world, propensities in kinds:
        of_kind = [r for r in rows if (r["world"], r["propensities"]) == (world, propensities)]
        for score in ("random", *SCORES):
            of_score = [row for row in of_kind if row["score"] == score]
            cells = [
                format_regret(of_score, rule) for rule in (rules if score != "random" else [""])
            ]
            if score == "random":
                cells += [""] * (len(rules) + 1)
            else:
                cells.append(f"{np.mean([row['rank_correlation'] for row in of_score]):.2f}")
                level = np.mean([row["level"] for row in of_score if row["rule"] == rules[0]])
                cells.append(f"{100 * level:+.0f} %")
            print(f"| {world} | {propensities} | {score} | {' | '.join(cells)} |")


def format_regret(rows: list[dict[str, Any]], rule: str) -> str:
    values = 100 * np.array([row["regret"] for row in rows if row["rule"] == rule])
    half = stats.t.ppf(0.975, values.size - 1) * values.std(ddof=1) / np.sqrt(values.size)
    return f"{values.mean():.1f} ± {half:.1f}"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--worlds", nargs="*", default=list(WORLDS))
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    rows = []
    for seed in range(options.seeds):
        for world in options.worlds:
            truth, log, kinds = draw(world, seed)
            for name, propensities in kinds.items():
                key = {"world": world, "propensities": name, "seed": seed}
                rows += [key | row for row in measure(truth, log, propensities, seed)]
                if options.json:
                    options.json.write_text(json.dumps(rows))
    print_table(rows)


if __name__ == "__main__":
    main()
