"""The leaderboard: protocols, ties, and learners that nobody has to list."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import pytest
from scipy import stats

import unskew
from unskew.data.ratings import Ratings
from unskew.errors import BadPropensityError, UnknownNameError, UsageError
from unskew.estimators.estimate import Estimate
from unskew.model_selection.grids import L2, OFFSETS, WRITTEN
from unskew.model_selection.leaderboard import (
    BEST_CONSTANT,
    LeaderboardInterrupted,
    compare_with_best,
    rank_learners,
    summarize_trials,
)
from unskew.model_selection.learners import Learner, TrialSetup, find_learners, make_learner
from unskew.model_selection.protocols import (
    PROTOCOLS,
    LeaderboardData,
    RandomTestData,
    check_propensity_matrix,
)
from unskew.model_selection.verdicts import BEST, TIED, join_failures, write_headline
from unskew.models import RECOMMENDERS
from unskew.models.baselines import GlobalMean, OffsetsOnly
from unskew.models.factor_recommender import FactorRecommender
from unskew.models.matrix_factorization import MatrixFactorization
from unskew.propensity.naive_bayes import NaiveBayesPropensity
from unskew.settings import draw_seeds, setting

WORLD = unskew.simulate(n_users=60, n_items=40, density=0.2, alpha=0.6, random_state=3)
CELLS = np.random.default_rng(0).choice(WORLD.truth.size, 600, replace=False)
TEST = Ratings.from_codes(CELLS // 40, CELLS % 40, WORLD.truth.ravel()[CELLS], shape=(60, 40))
DATA = RandomTestData(WORLD.log, TEST, WORLD.propensities)
GRID = {"l2": [1.0, 10.0, 100.0]}
LEARNERS = {
    "mf": Learner(MatrixFactorization(2), GRID),
    "naive": Learner(MatrixFactorization(2), GRID, is_naive=True),
    "mean": Learner(GlobalMean()),
}


def errors(model: Any, cells: np.ndarray, test: Ratings = TEST) -> np.ndarray:
    prediction = model.predict(test.users[test.user], test.items[test.item])
    return np.square(test.rating - prediction)[cells]


@pytest.fixture(scope="module")
def board() -> Any:
    return rank_learners(DATA, learners=LEARNERS, protocols=list(PROTOCOLS), n_repeats=2)


def test_clean_leaves_out_the_cells_of_the_log(board: Any) -> None:
    seen = set(zip(WORLD.log.user.tolist(), WORLD.log.item.tolist(), strict=True))
    is_seen = np.array([pair in seen for pair in zip(TEST.user, TEST.item, strict=True)])
    model = GlobalMean().fit(WORLD.log, WORLD.propensities)

    assert 0 < is_seen.sum() < len(TEST)
    assert board.row("mean")["mean"] == pytest.approx(errors(model, ~is_seen).mean())
    assert board.row("mean", protocol="paper")["mean"] == pytest.approx(
        errors(model, np.ones_like(is_seen)).mean()
    )


def test_cells_are_found_by_their_ids() -> None:
    """A test with other codes for the same ids."""
    order = np.random.default_rng(1).permutation(60)
    moved = Ratings.from_arrays(order[TEST.user] + 100, TEST.item, TEST.rating)
    log = Ratings.from_arrays(order[WORLD.log.user] + 100, WORLD.log.item, WORLD.log.rating)

    assert np.array_equal(RandomTestData(log, moved).is_logged(), DATA.is_logged())


def test_the_sample_leaves_the_clean_test_but_not_the_leaky_one() -> None:
    is_sampled = DATA.is_sampled(7)
    clean = DATA.is_tested(PROTOCOLS["sample"], 7)
    model = DATA.find_propensities(7, uses_sample=True)
    expected = NaiveBayesPropensity(smoothing=1.0).fit(WORLD.log, mcar=TEST.rating[is_sampled])

    assert is_sampled.sum() == 30
    assert not (clean & is_sampled).any()
    assert DATA.is_tested(PROTOCOLS["leaky"], 7).all()
    levels = np.unique(WORLD.log.rating)
    assert np.array_equal(model.predict_ratings(levels), expected.predict_ratings(levels))  # type: ignore[union-attr]


def test_cross_validation_chooses_and_the_regret_is_its_loss(board: Any) -> None:
    clean = ~DATA.is_logged()
    regrets, chosen_errors = [], []
    for seed in range(2):
        choice = unskew.cross_validate(
            MatrixFactorization(2, random_state=seed, tol=1e-5),
            WORLD.log,
            propensities=WORLD.propensities,
            grid=GRID,
            random_state=seed,
            extend_grid=False,
        ).best_params
        models = {
            l2: MatrixFactorization(2, l2, random_state=seed, tol=1e-5).fit(
                WORLD.log, WORLD.propensities
            )
            for l2 in GRID["l2"]
        }
        by_l2 = {l2: errors(model, clean).mean() for l2, model in models.items()}
        chosen_errors.append(by_l2[choice["l2"]])
        regrets.append(by_l2[choice["l2"]] - min(by_l2.values()))
    row = board.row("mf")

    assert row["mean"] == pytest.approx(np.mean(chosen_errors), rel=1e-3)
    assert row["regret"] == pytest.approx(np.mean(regrets), abs=2e-3)
    assert row["at_edge"] in (0, 1, 2)


def test_the_leaky_protocol_takes_the_least_error_of_the_test(board: Any) -> None:
    values = []
    for seed in range(2):
        bayes = DATA.find_propensities(seed, uses_sample=True)
        fits = [
            MatrixFactorization(2, l2, random_state=seed, tol=1e-5).fit(WORLD.log, bayes)
            for l2 in GRID["l2"]
        ]
        values.append(min(errors(fit, np.ones(600, dtype=bool)).mean() for fit in fits))

    assert board.row("mf", protocol="leaky")["mean"] == pytest.approx(np.mean(values), rel=1e-3)
    assert board.row("mf", protocol="leaky")["regret"] is None


def test_defaults_are_those_of_the_model(board: Any) -> None:
    fits = [
        MatrixFactorization(2, random_state=seed).fit(WORLD.log, WORLD.propensities)
        for seed in range(2)
    ]
    expected = np.mean([errors(fit, ~DATA.is_logged()).mean() for fit in fits])

    assert board.row("mf", protocol="defaults")["mean"] == pytest.approx(expected)


def test_the_best_constant_knows_the_test_and_is_not_ranked(board: Any) -> None:
    row = board.row(BEST_CONSTANT)

    assert row["verdict"] == "knows the test"
    assert row["mean"] == pytest.approx(TEST.rating[~DATA.is_logged()].var())
    verdicts = [
        r["verdict"] for r in board.rows if (r["protocol"], r["metric"]) == ("clean", "mse")
    ]
    assert verdicts.count(BEST) == 1
    assert verdicts[-1] == "knows the test"


def test_warnings_about_propensities_are_counted_once() -> None:
    learners, protocol = {"mean": LEARNERS["mean"]}, PROTOCOLS["clean"]
    (trial,) = TrialSetup(DATA, [protocol], 0).run(learners)
    trials = [replace(trial, warnings=("1 exceeds 1.", "other")), trial]

    board = summarize_trials(
        trials, LeaderboardData.of(DATA), [protocol], learners=["mean"], metrics=["mse"]
    )

    (note,) = board.warnings
    assert note == (
        "naive-Bayes propensities of 1 of 2 seeds have a warning; the first: 1 exceeds 1."
    )
    assert note in repr(board)


def test_how_a_leaderboard_shows_itself(board: Any) -> None:
    text, record = repr(board), json.loads(board.to_json())

    assert "= cannot be told from it, but need not be as good" in text
    assert "paired by user" in text
    assert f"grids written down on {WRITTEN}" in text
    assert record["kind"] == "leaderboard"
    assert list(record["protocols"]) == list(PROTOCOLS)
    assert len(board.to_frame("pandas")) == 5 * 2 * 4
    with pytest.raises(UnknownNameError, match="unknown learner of this leaderboard 'x'"):
        board.row("x")


def test_a_world_that_is_drawn_anew_is_paired_by_draw() -> None:
    draws = {seed: DATA if seed == 0 else RandomTestData(WORLD.log.take(np.arange(300)), TEST,
             WORLD.propensities.values[:300]) for seed in range(2)}  # fmt: skip
    world = LeaderboardData("two logs", draws.__getitem__, is_redrawn=True)
    learners = {"mean": LEARNERS["mean"], "offsets": Learner(OffsetsOnly(l2=5.0))}

    board = rank_learners(world, learners=learners, protocols=["defaults"], n_repeats=2)

    by_draw = {
        name: [
            errors(learner.model.fit(data.log, data.propensities), ~data.is_logged()).mean()
            for data in draws.values()
        ]
        for name, learner in learners.items()
    }
    best = min(by_draw, key=lambda name: np.mean(by_draw[name]))
    other = next(name for name in by_draw if name != best)
    row = board.row(other, protocol="defaults")
    expected = stats.ttest_rel(by_draw[other], by_draw[best])
    interval = expected.confidence_interval(0.95)
    assert row["mean"] == pytest.approx(np.mean(by_draw[other]))
    assert row["p_holm"] == pytest.approx(expected.pvalue)
    assert (row["behind_low"], row["behind_high"]) == pytest.approx((interval.low, interval.high))
    assert board.paired_by == "draw"
    assert "with 2 draws only huge differences can be told from chance" in repr(board)


def test_a_generator_draws_the_seeds() -> None:
    seeds: list[int] = []

    def draw(seed: int) -> RandomTestData:
        seeds.append(seed)
        return DATA

    rank_learners(
        LeaderboardData("two logs", draw, is_redrawn=True),
        learners={"mean": LEARNERS["mean"]},
        protocols=["clean"],
        n_repeats=2,
        random_state=np.random.default_rng(7),
    )

    assert seeds == draw_seeds(np.random.default_rng(7), 2)


def test_one_draw_has_no_interval() -> None:
    world = LeaderboardData("one log", lambda _: DATA, is_redrawn=True)
    row = rank_learners(
        world, learners={"mean": LEARNERS["mean"]}, protocols=["clean"], n_repeats=1
    ).row("mean")

    assert row["ci_low"] is None
    assert row["verdict"] == BEST


def test_equal_learners_are_told_apart_in_at_most_five_percent_of_samples() -> None:
    """Twelve equally good learners, 400 samples: a false verdict in 5 % at most (noise 1.1 %).

    With an adjustment for the eleven comparisons with the best alone it would be about 15 %.
    """
    rng, n_false = np.random.default_rng(0), 0
    for _ in range(400):
        errors = rng.normal(size=(12, 40))
        estimate = Estimate(errors.mean(axis=1), np.cov(errors) / 40, degrees=39)
        rows = compare_with_best(estimate, n_ranked=12, level=0.95)
        n_false += any(row["verdict"] not in (BEST, TIED) for row in rows)

    assert n_false / 400 < 0.05 + 3 * 0.011


def test_a_clearly_worse_learner_is_no_tie() -> None:
    rng = np.random.default_rng(0)
    errors = rng.normal(size=(3, 40)) + np.array([[0.0], [0.01], [3.0]])
    estimate = Estimate(errors.mean(axis=1), np.cov(errors) / 40, degrees=39)

    assert [row["verdict"] for row in compare_with_best(estimate, n_ranked=3, level=0.95)][2] == (
        "worse"
    )


@dataclass(eq=False, repr=False)
class Failing(FactorRecommender):
    """Cannot be fitted."""

    l2: float = setting(1.0)

    def fit(self, log: Ratings, propensities: Any = None) -> Self:
        raise UsageError("this learner cannot be fitted.")


class Other(GlobalMean):
    """A recommender of another package."""


def test_a_learner_that_fails_does_not_stop_the_others() -> None:
    learners = {"mean": LEARNERS["mean"], "bad": Learner(Failing(), {"l2": [1.0]})}

    board = rank_learners(DATA, learners=learners, protocols=["clean"], n_repeats=1)

    assert [row["learner"] for row in board.rows if row["metric"] == "mse"] == [
        "mean",
        BEST_CONSTANT,
    ]
    assert board.failures == [
        {"protocol": "clean", "learner": "bad", "reason": "this learner cannot be fitted."}
    ]
    assert "bad under clean: this learner cannot be fitted." in repr(board)


def test_a_declared_learner_takes_part_with_the_same_grid_as_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    list(RECOMMENDERS)  # so that all are declared before the copy is made
    monkeypatch.setattr(RECOMMENDERS, "_declarations", dict(RECOMMENDERS._declarations))
    RECOMMENDERS.declare("failing", label="Failing", summary="Cannot be fitted.")(Failing)
    RECOMMENDERS.declare("mf-other", label="MF", summary="The label of another.")(Other)

    learners = find_learners(propensity_matrix=np.ones((2, 2)))

    assert learners["Failing"].grid == {"l2": L2}
    assert isinstance(learners["MF"].model, MatrixFactorization)
    assert isinstance(learners["MF (mf-other)"].model, Other)
    assert {"HL-MNAR", "CPT-v", "Offsets", "Mean rating", "Item mean", "TDR"} <= learners.keys()
    for name, learner in learners.items():
        grid = learner.grid or {}
        assert grid.get("l2", L2) is L2, name
        assert grid.get("offsets", OFFSETS) is OFFSETS, name
    assert "TDR" not in find_learners()
    assert {"DCE-DR", "MR", "AKB-DR"} <= learners.keys()
    others = {"Popularity", "AllRank", "Logistic MF", "MF with random ratings"}
    assert not others & learners.keys()


def test_a_recommender_that_equals_a_preset_takes_part_once() -> None:
    labels = list(find_learners())

    assert "DR-JL" in labels
    assert RECOMMENDERS["doubly-robust"].label not in labels
    assert make_learner(RECOMMENDERS["popularity"]) is None


@pytest.mark.parametrize(
    ("settings", "error", "match"),
    [
        ({"protocols": ["clear"]}, UnknownNameError, "unknown protocol 'clear'"),
        ({"protocols": []}, UsageError, "protocols is empty"),
        ({"learners": ["MFF"]}, UnknownNameError, "unknown learner 'MFF'"),
        ({"metrics": ["mae"]}, UsageError, "and always mse"),
        ({"metrics": ["mse", "rmse"]}, UsageError, "has the metrics mse and mae"),
        ({"n_repeats": 0}, UsageError, "n_repeats"),
    ],
)
def test_refusals(settings: dict[str, Any], error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        rank_learners(DATA, **settings)


def test_without_propensities_there_is_the_sample_only() -> None:
    data = RandomTestData(WORLD.log, TEST)
    board = rank_learners(data, learners={"mean": LEARNERS["mean"]}, n_repeats=1)

    assert board.protocols == ["sample", "leaky"]
    with pytest.raises(UsageError, match="the protocol 'clean' needs propensities of the log"):
        rank_learners(data, protocols=["clean"])


def test_a_wrong_value_in_a_propensity_matrix_is_named() -> None:
    matrix = np.full((3, 4), 0.5)
    matrix[1, 2] = 0.0
    with pytest.raises(BadPropensityError, match="is 0, at user row 1 and item column 2"):
        check_propensity_matrix(matrix)
    with pytest.raises(BadPropensityError, match=r"got shape \(4,\)"):
        check_propensity_matrix(np.full(4, 0.5))


UNOBSERVED_CELLS = ("HL-MNAR", "CPT-v", "Logit-vd")
"""Learners that read the unobserved cells of the whole universe."""


def name_ids(ratings: Ratings, rows: Any = slice(None), **options: Any) -> Ratings:
    """The rows with text for ids, which lists only the users and items that they have."""
    users = [f"u{code}" for code in ratings.user[rows]]
    items = [f"i{code}" for code in ratings.item[rows]]
    return Ratings.from_arrays(users, items, ratings.rating[rows], **options)


def test_users_and_items_without_an_id_do_not_drop_a_learner() -> None:
    """Two users are in the test alone, two users and three items nowhere."""
    is_kept = WORLD.log.user < 58
    log = name_ids(WORLD.log, is_kept, universe=(62, 43))
    data = RandomTestData(log, name_ids(TEST), WORLD.propensities.values[is_kept])
    learners = {name: replace(find_learners()[name], grid=None) for name in UNOBSERVED_CELLS}

    board = rank_learners(data, learners=learners, protocols=["clean", "leaky"], n_repeats=1)

    assert not board.failures
    assert (data.log.n_users, data.log.n_items) == (62, 43)
    assert set(data.log.users[58:60]) == {"u58", "u59"}
    assert data.log.users[-1] == "user without an id, 62"
    assert np.array_equal(data.is_logged(), DATA.is_logged() & (TEST.user < 58))


def test_a_fitted_model_of_propensities_knows_listed_users_only() -> None:
    log = name_ids(WORLD.log, universe=(62, 43))
    model = unskew.propensity.PopularityPropensity().fit(log)
    data = RandomTestData(log, name_ids(TEST), model)

    assert np.array_equal(data.propensities.values, model.predict(log).values)  # type: ignore[union-attr]
    assert len(data.log.users) == 62


@pytest.mark.parametrize("universe", [(59, 40), (60, 500), None])
def test_a_universe_that_cannot_be_filled_up_is_left_alone(universe: Any) -> None:
    """No room for the users of the test, too many empty items, and an unknown universe."""
    log = name_ids(WORLD.log, WORLD.log.user < 58, universe=universe)

    assert RandomTestData(log, name_ids(TEST)).log is log


def test_a_reason_has_no_advice_about_arguments_of_a_fit() -> None:
    log = name_ids(WORLD.log, universe=(60, 500))
    learners = {"HL-MNAR": Learner(find_learners()["HL-MNAR"].model)}
    board = rank_learners(
        RandomTestData(log, name_ids(TEST)),
        learners={"mean": LEARNERS["mean"], **learners},
        protocols=["sample"],
        n_repeats=1,
    )

    (failure,) = board.failures
    assert failure["reason"].endswith("this model uses the unobserved cells of the whole universe.")


def make_record(rows: list[tuple[str, float, str]], **changes: Any) -> dict[str, Any]:
    """The record of a leaderboard with these learners, means and verdicts."""
    described = [
        {"protocol": "clean", "metric": "mse", "learner": name, "mean": mean, "verdict": verdict}
        for name, mean, verdict in rows
    ]
    record = {"rows": described, "data": "log.csv", "failures": [], "n_repeats": 10}
    return record | {"n_planned": 10, "paired_by": "user"} | changes


RANKED = [
    ("DR-V2", 0.8810, "best"),
    ("IPS-V2", 0.8815, "worse"),
    ("MF", 0.8821, "worse"),
    ("StableDR", 0.883, "tied"),
    ("MF, naive", 0.935, "tied"),
    ("Mean", 1.2, "worse"),
]


def headline_of(record: dict[str, Any]) -> str:
    return "".join(text for text, _ in write_headline(record))


def test_the_headline_names_learners_that_are_hardly_behind_and_says_what_a_tie_is() -> None:
    assert headline_of(make_record(RANKED)) == (
        "Of 6 learners on log.csv, DR-V2 has the least MSE, 0.881. "
        "Behind by less than 0.002: IPS-V2 (0.881) and MF (0.882). The test cannot tell these "
        "from it; they need not be as good: StableDR (0.883) and MF, naive (0.935)."
    )


def test_the_headline_is_sorted_by_error_and_short() -> None:
    ties = [(f"tie {n}", 0.8811 + n / 100, "tied") for n in range(6)]
    text = headline_of(make_record([RANKED[0], *ties, ("MF", 0.8821, "worse")]))

    assert text.index("tie 0") < text.index("Behind by less than 0.002: MF (0.882)")
    assert "tie 2 (0.901) and 3 others (up to 0.931)." in text


def test_the_headline_names_omitted_learners_and_why() -> None:
    failures = [
        {"protocol": protocol, "learner": name, "reason": "too few users."}
        for name in ("HL-MNAR", "CPT-v")
        for protocol in ("clean", "leaky")
    ]
    text = headline_of(make_record(RANKED[:1], failures=failures))

    assert text.endswith("0.881. Without a number: HL-MNAR and CPT-v (too few users).")
    assert join_failures(failures) == [(["HL-MNAR", "CPT-v"], "clean and leaky", "too few users.")]


def test_one_seed_does_not_show_how_settings_vary() -> None:
    learners = {"mean": LEARNERS["mean"]}
    board = rank_learners(DATA, learners=learners, protocols=["clean"], n_repeats=1)

    assert "with 1 seed the numbers do not show how chosen settings vary" in repr(board)
    assert board.headline in repr(board)


def interrupt_after(n_seeds: int) -> LeaderboardData:
    """A world whose next draw is an interrupt."""
    seeds: list[int] = []

    def draw(seed: int) -> RandomTestData:
        seeds.append(seed)
        if len(seeds) > n_seeds:
            raise KeyboardInterrupt
        return DATA

    return LeaderboardData("log.csv", draw, is_redrawn=True)


def test_an_interrupt_keeps_the_finished_seeds() -> None:
    learners = {"mean": LEARNERS["mean"]}
    with pytest.raises(LeaderboardInterrupted, match="interrupted after 2 of 5 seeds") as caught:
        rank_learners(interrupt_after(2), learners=learners, protocols=["clean"], n_repeats=5)

    board = caught.value.leaderboard
    assert (board.n_repeats, board.n_planned) == (2, 5)
    assert board.headline.startswith("After 2 of 5 seeds: of 1 learner on log.csv, mean has")
    assert "the run was interrupted: every number is of 2 of 5 seeds" in repr(board)
    assert set(board.to_columns()["seeds"]) == {"2 of 5"}


def test_an_interrupt_of_the_first_seed_has_no_table() -> None:
    learners = {"mean": LEARNERS["mean"]}
    with pytest.raises(KeyboardInterrupt) as caught:
        rank_learners(interrupt_after(0), learners=learners, protocols=["clean"], n_repeats=5)

    assert not isinstance(caught.value, LeaderboardInterrupted)


def test_a_test_of_logged_cells_alone_is_an_error() -> None:
    data = RandomTestData(WORLD.log, WORLD.log, WORLD.propensities)

    with pytest.raises(UsageError, match="no cell is left to be tested under 'clean': all"):
        rank_learners(data, learners={"mean": LEARNERS["mean"]}, n_repeats=1)
