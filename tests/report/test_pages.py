from __future__ import annotations

import json
import re
import time
import warnings
from contextlib import suppress
from html import escape
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

import unskew
from unskew import (
    Ratings,
    diagnose,
    evaluate,
    evaluate_frame,
    evaluate_policies,
    simulate,
    simulate_impressions,
)
from unskew.errors import BadFileError, PropensityWarning, UsageError
from unskew.estimators import ESTIMATORS, Estimator
from unskew.evaluation import Evaluation
from unskew.paper.demo import run_demo
from unskew.propensity import (
    LogisticPropensity,
    NaiveBayesPropensity,
    PopularityPropensity,
    UniformPropensity,
)
from unskew.report import PAGES, build_page, draw, render_file, write_page
from unskew.report.charts import Chart, default_look
from unskew.report.comparison import describe_comparison, estimator_looks, main_estimator
from unskew.report.evaluation import draw_evaluation
from unskew.report.page import Page, make_table, render
from unskew.report.svg import draw_chart

KINDS = list(PAGES)
OWN_HEADLINE = ("comparison", "reproduction")
"""Kinds of results that show another sentence, or none, in a notebook."""
SCRIPT = "<script>alert(1)</script>"


class Seen(HTMLParser):
    """The elements of a page, and the text of its head line."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def count(self, name: str) -> int:
        return sum(tag == name for tag, _ in self.tags)


def record_of(result: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(result.to_json())
    return found


# Every kind


@pytest.mark.parametrize("kind", KINDS)
def test_every_result_names_its_kind_and_version(kind: str, made: dict[str, Any]) -> None:
    record = record_of(made[kind])

    assert (record["kind"], record["version"]) == (kind, unskew.__version__)


@pytest.mark.parametrize("kind", KINDS)
def test_a_result_and_its_json_make_the_same_page(
    kind: str, made: dict[str, Any], pages: dict[str, Path]
) -> None:
    def shorn(text: str) -> str:
        return re.sub(r"\d\d \w+ \d{4}, \d\d:\d\d UTC", "", text)

    again = render_file(made[kind].to_json(), "x.json")

    assert shorn(again) == shorn(pages[kind].read_text())


@pytest.mark.parametrize("kind", KINDS)
def test_a_page_fetches_nothing_and_runs_nothing_but_its_own_script(
    kind: str, pages: dict[str, Path]
) -> None:
    text = pages[kind].read_text()
    seen = Seen(text)

    assert (
        seen.count("script") == seen.count("style") == seen.count("main") == seen.count("h1") == 1
    )
    assert {attributes.get("href") for tag, attributes in seen.tags if tag == "link"} == {"data:,"}
    assert not [
        tag
        for tag, attributes in seen.tags
        if {"src", "style", "onclick", "onload"} & set(attributes)
    ]
    assert "http://" not in text
    assert "https://" not in text
    (policy,) = [
        a["content"] for tag, a in seen.tags if a.get("http-equiv") == "Content-Security-Policy"
    ]
    assert policy is not None
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in policy
    assert pages[kind].stat().st_size < 1_500_000


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in OWN_HEADLINE])
def test_a_notebook_shows_the_headline_of_the_page(kind: str, made: dict[str, Any]) -> None:
    html = made[kind]._repr_html_()

    assert html.startswith(f"<p><strong>{escape(headline(record_of(made[kind])))}</strong></p>")


NAMELESS = ("reproduction", "demo", "cross_validation", "position_bias")
"""Kinds of results that show no name of the caller."""


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in NAMELESS])
def test_a_name_that_is_markup_stays_text(kind: str, pages: dict[str, Path]) -> None:
    text = pages[kind].read_text()

    assert SCRIPT not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text


@pytest.mark.parametrize("kind", KINDS)
def test_every_drawing_is_told_in_words(kind: str, pages: dict[str, Path]) -> None:
    drawings = re.findall(r'<svg class="drawing".*?</svg>', pages[kind].read_text(), re.DOTALL)

    assert drawings
    for drawing in drawings:
        assert re.match(
            r'<svg [^>]*role="img"[^>]*><title>[^<]+</title><desc>[^<]+</desc>', drawing
        )
        assert "nan" not in drawing.lower().replace("nanc", "")
        assert "inf" not in re.sub(
            r"<(title|desc)[^>]*>.*?</\1>|<text.*?</text>", "", drawing, flags=re.DOTALL
        )


@pytest.mark.parametrize("kind", KINDS)
def test_a_page_says_how_it_was_computed(kind: str, made: dict[str, Any]) -> None:
    facts = dict(build_page(record_of(made[kind])).facts)

    assert facts["computed by"] == f"unskew {unskew.__version__}"
    assert "command" in render(
        build_page(record_of(made[kind])), command="unskew evaluate 'a b.csv'"
    )


def test_what_is_typed_is_describe_comparison(made: dict[str, Any]) -> None:
    text = render(build_page(record_of(made["evaluation"])), command="unskew evaluate '<b>'")

    assert "unskew evaluate &#39;&lt;b&gt;&#39;" in text


# The headline

SPREADS = {"a": 0.3, "b": 1.0}
"""Standard deviations of the errors of two models."""


def row(
    first: str,
    second: str,
    difference: float,
    reach: float,
    better: str | None,
    estimator: str = "snips",
) -> dict[str, Any]:
    ends = {"ci_low": difference - reach, "ci_high": difference + reach}
    return {
        "first": first,
        "second": second,
        "metric": "mae",
        "estimator": estimator,
        "difference": difference,
        **ends,
    } | {"better": better}


def test_a_comparison_is_told_as_who_beats_whom_by_how_much() -> None:
    won = "a beats b by 0.31 MAE [0.22, 0.40]"
    assert describe_comparison(row("a", "b", 0.31, 0.09, "a")) == won
    assert describe_comparison(row("a", "b", -0.31, 0.09, "a")) == won
    assert (
        describe_comparison(row("a", "b", 0.31, 0.09, "b"), verb="is ahead of", with_interval=False)
        == "b is ahead of a by 0.31 MAE"
    )
    assert (
        describe_comparison(row("a", "b", 0.01, 0.09, None))
        == "a and b cannot be told apart on MAE: a minus b is +0.01 [−0.08, +0.10]"
    )


def headline(record: dict[str, Any]) -> str:
    return build_page(record).title


def test_the_naive_favourite_follows_the_corrected_one() -> None:
    story = run_demo()
    assert headline(record_of(story.evaluation)) == (
        "If the supplied propensities are right, realist beats optimist by 0.90 MAE "
        "[0.88, 0.92]. (The plain average of the log says the opposite: optimist, by 0.13.)"
    )


WORLD = simulate(30, 40, density=0.2, alpha=0.5, random_state=2)


def judged(models: dict[str, Any], **settings: Any) -> Evaluation:
    return evaluate(
        WORLD.log, models, propensities=WORLD.propensities, **({"metrics": ["mae"]} | settings)
    )


@pytest.mark.filterwarnings("ignore::unskew.errors.UnskewWarning")
def test_pages_of_comparisons_claim_no_more_than_the_page_of_the_evaluation() -> None:
    log = unskew.simulate(200, 80, density=0.1, alpha=0.25, random_state=0)
    rng = np.random.default_rng(0)
    models = {name: log.log.rating + rng.normal(0, s, len(log.log)) for name, s in SPREADS.items()}
    size = log.log.n_users, log.log.n_items

    def headlines(propensities: Any) -> list[str]:
        found = unskew.evaluate(
            log.log, models, propensities=propensities, universe=size, metrics=["mse"]
        )
        results = found.compare("a", "b"), found.compare("b", "a"), found.compare_all()
        return [build_page(record_of(each)).headline[0][0] for each in results]

    blind = PopularityPropensity("both").fit(log.log, universe=size)
    for text in headlines(log.propensities):
        assert text.startswith("If the supplied propensities are right, a ")
        assert "a beats b" in text or text.endswith("a is the best of 2 models by MSE.")
    for text in headlines(blind):
        assert text.startswith("Adjusted for users and items only, a is ahead ")
    for text in headlines(np.full(len(log.log), 0.5)):
        assert text.startswith("Not reliable: the propensities do not fit this log. If the ")
        assert " a is ahead " in text
    for text in headlines(UniformPropensity().fit(log.log, universe=size)):
        assert text.startswith("Not reliable: the variance of item totals is 23 times what the ")
        assert " a is ahead " in text


def test_a_comparison_of_all_pairs_shows_why_estimates_cannot_be_used() -> None:
    record = {
        "kind": "pairwise_comparison",
        "version": unskew.__version__,
        "metric": "mae",
        "estimator": "ips",
        "level": 0.95,
        "higher_is_better": False,
        "models": ["a", "b"],
        "best": ["a"],
        "pairs": [
            {"first": "a", "second": "b", "difference": -1.0, "ci_low": -1.5, "ci_high": -0.5}
            | {"p_value": 0.01, "p_adjusted": 0.01, "better": "a"}
        ],
    }
    good = build_page(record)  # of a file of 0.1.0, which does not say what the weights rest on
    bad = build_page(record | {"warnings": ["IPS has MAE below 0."]})

    assert good.headline[0][0] == "If the propensities are right, a is the best of 2 models by MAE."
    assert bad.headline[0][0].startswith("No verdict: MAE by IPS cannot be used")
    assert bad.warnings == ("IPS has MAE below 0.",)


def test_one_model_alone_has_its_value_describe_comparison() -> None:
    found = judged({"m": WORLD.truth + 1.0})

    assert headline(record_of(found)) == (
        "If the supplied propensities are right, m has MAE 1.000 [1.000, 1.000]. "
        "(The plain average of the log is 1.000.)"
    )


def test_without_weights_it_is_said_that_selection_stays() -> None:
    models = {"m": WORLD.truth + 1.0, "n": WORLD.truth + 2.0}

    assert headline(record_of(judged(models, estimators=["naive"]))).endswith(
        "; this is not corrected for selection."
    )
    assert headline(record_of(judged(models, estimators=["ips"]))).startswith(
        "If the supplied propensities are right, m beats n by 1.0"
    )


NOISE = np.random.default_rng(5).normal(size=WORLD.truth.shape)
WORLD_APART = {"m": WORLD.truth + 1.0, "n": WORLD.truth + 2.0}
PAIR = {"m": WORLD.truth + 1.0, "n": WORLD.truth + 1.2 * NOISE}


def judged_blindly(models: dict[str, Any], **settings: Any) -> dict[str, Any]:
    propensities = PopularityPropensity("item").fit(WORLD.log)
    return record_of(evaluate(WORLD.log, models, propensities=propensities, **settings))


def test_propensities_without_ratings_give_no_verdict() -> None:
    far = WORLD.truth + 3.0
    (said, is_emphasized), (rest, _) = build_page(
        judged_blindly({"m": WORLD.truth + 1.0, "far": far}, metrics=["mae"])
    ).headline

    assert is_emphasized
    assert said == "This log cannot say which model is better over all users and items."
    assert rest.startswith(" Adjusted for items only, m is ahead of far by 2.000 MAE [")
    assert rest.endswith(
        "]. If people rate what they like, or if the propensities leave out anything else, the "
        "order can also be the other way round, or the difference much larger. (The plain "
        "average of the log says m, by 2.000.)"
    )
    tied = {"m": WORLD.truth + 1.0, "n": WORLD.truth - 1.0}
    assert headline(judged_blindly(tied, metrics=["mae"])).endswith(
        "m and n cannot be told apart on MAE: m minus n is 0.000 [0.000, 0.000]. Not told apart "
        "does not mean equal. If people rate what they like, or if the propensities leave out "
        "anything else, either can be better, by more than this interval says. (The plain "
        "average of the log cannot tell them apart on MAE.)"
    )
    assert headline(judged_blindly({"m": far}, metrics=["mae"])) == (
        "This log cannot say what MAE m has over all users and items. Adjusted for items only, m "
        "has MAE 3.000 [3.000, 3.000]. If people rate what they like, or if the propensities leave "
        "out anything else, this value can be wrong. (The plain average of the log is 3.000.)"
    )


@pytest.mark.filterwarnings("ignore:the effective sample size")
def test_a_page_says_what_propensities_without_ratings_adjust_for() -> None:
    features = np.arange(WORLD.log.n_users, dtype=float)[:, None] % 3
    start = "over all users and items. "
    for model, scope in (
        (UniformPropensity(), "Not adjusted,"),
        (PopularityPropensity("user"), "Adjusted for users only,"),
        (PopularityPropensity("both"), "Adjusted for users and items only,"),
        (
            LogisticPropensity(features, item_offsets=False, ridge=1.0),
            "Adjusted for covariates only,",
        ),
        (LogisticPropensity(features, ridge=1.0), "Adjusted for items and covariates only,"),
    ):
        fitted = model.fit(WORLD.log)
        record = record_of(evaluate(WORLD.log, WORLD_APART, propensities=fitted, metrics=["mae"]))
        record["unexplained"] = None
        assert start + scope in headline(record)
        page = build_page(record)
        (section,) = [each for each in page.sections if "before and after" in each.title]
        label = scope[:1].lower() + scope[1:-1] if record["adjusts_for"] else "weighted"
        assert section.charts[0].legend[1].label == label
        said = f"adjust for {record['adjusts_for'] or 'nothing'}"
        assert said in record["assumption"]
        assert record["assumption"] not in page.assumptions, "the headline says it"
        (step,) = [text for text in page.assumptions if text.startswith("Next step: ")]
        assert step == page.assumptions[-1]
    known = evaluate(
        WORLD.log, WORLD_APART, propensities=fitted, metrics=["mae"], propensities_known=True
    )
    assert "Adjusted for items and covariates only," in headline(record_of(known))
    old = {key: value for key, value in record.items() if key != "adjusts_for"}
    assert "Adjusted for users, items or covariates only," in headline(old)


def test_nobody_is_sent_to_buy_the_random_ratings_that_they_have() -> None:
    sample = np.random.default_rng(1).choice(WORLD.truth.ravel(), 1000)
    fitted = NaiveBayesPropensity().fit(WORLD.log, mcar=sample)
    record = record_of(evaluate(WORLD.log, WORLD_APART, propensities=fitted, metrics=["mae"]))
    (step,) = [text for text in build_page(record).assumptions if "Next step" in text]

    assert step == (
        "Next step: you already have 1,000 random ratings. If they were really drawn at random "
        "and name users and items, and no model was trained on them, score the models on them: "
        "`unskew.evaluate_random_test`. `unskew.plan_random_sample` says whether they are enough"
    )
    known = build_page(record_of(judged(WORLD_APART))).assumptions[-1]
    assert known.startswith(
        "Next step: none if your system logged ratings with exactly these probabilities. "
    )
    assert known.endswith("`unskew.plan_random_sample` says how many are needed")
    naive = build_page(record_of(judged(WORLD_APART, estimators=["naive"])))
    assert naive.assumptions == (
        "Next step: estimate propensities and pass them, so that selection is corrected",
    )
    assert build_page(record | {"unusable": [["mae", n] for n in record["estimators"]]}).title


def test_the_plain_average_says_when_the_correction_favours_the_other_model() -> None:
    record = record_of(judged(WORLD_APART, estimators=["naive", "snips"]))
    naive, snips = record["differences"]
    naive |= {"difference": -2.0, "ci_low": -2.1, "ci_high": -1.9, "first": "m", "second": "n"}
    snips |= {"difference": -1.0, "ci_low": -1.2, "ci_high": -0.8, "first": "m", "second": "n"}

    said = "(The plain average of the log says m, by 2.00; the correction moves it towards n.)"
    assert headline(record).endswith(said)
    naive |= {"difference": -0.5, "ci_low": -0.6, "ci_high": -0.4}
    assert headline(record).endswith("(The plain average of the log says m, by 0.50.)")
    naive |= {"difference": -1.1}
    assert headline(record).endswith("(The plain average of the log says m, by 1.10.)")


def test_a_check_that_fails_stands_once_and_stops_the_verdict_of_other_metrics() -> None:
    models = {"even": WORLD.truth + 1.0, "rare": WORLD.truth + 4.0 * (abs(NOISE) > 1.5)}
    found = judged(models, metrics=["mae", "mse"], estimators=["naive", "snips"])
    text = "Item totals vary."
    check = {"item_check": {"passed": False, "text": text}, "warnings": [text, "More."]}
    page = build_page(record_of(found) | check)

    assert "A check speaks against this condition." in page.title
    assert "But by MSE" not in page.title
    assert page.warnings == ("More.",)
    assert "does not tell the two models apart if what" in page.sections[0].text
    assert [each for each in page.assumptions if text in each] == [f"Check failed: {text}"]
    passed = build_page(record_of(found) | {"item_check": {"passed": True, "text": text}})
    assert f"Check passed: {text}" in passed.assumptions
    assert "But by MSE" in passed.title
    assert "speaks against" not in passed.title


def test_the_check_of_item_totals_is_named_where_it_can_fail() -> None:
    known = record_of(judged(WORLD_APART))["item_check"]

    assert known["passed"]
    assert "does not show that they are right" in known["text"]
    assert judged_blindly(WORLD_APART)["item_check"] is None


def test_the_ratings_of_propensities_without_ratings_are_not_those_of_all_cells() -> None:
    page = build_page(judged_blindly(PAIR, metrics=["mae"]))
    (section,) = [each for each in page.sections if "before and after weighting" in each.title]

    assert section.text.endswith("They can differ from the ratings of all users and items.")
    assert [entry.label for entry in section.charts[0].legend] == [
        "in the log",
        "adjusted for items only",
    ]
    assert "corrected" not in render(page)


@pytest.mark.filterwarnings("ignore::unskew.errors.PropensityWarning")
def test_weights_that_do_not_add_up_to_the_cells_give_no_verdict() -> None:
    propensities = np.minimum(2 * np.asarray(WORLD.propensities), 1.0)
    record = record_of(evaluate(WORLD.log, WORLD_APART, propensities=propensities, metrics=["mae"]))
    share = record["weights"]["mass"] / record["weights"]["n_cells"]

    assert build_page(record).headline == (
        (
            "This evaluation cannot say which model is better: the propensities do not fit this "
            "log.",
            True,
        ),
        (
            f" Their weights add up to {share:.0%} of the number of cells instead of about 100%.",
            False,
        ),
    )
    page = build_page(record)
    words = " ".join((*page.assumptions, *(each.text for each in page.sections)))
    assert "taken as known, but the weighted log contradicts them" in words
    assert "if the propensities are right" not in words
    assert "odds of being logged" not in words
    assert page.sections[0].title == "Differences"
    (chart,) = page.sections[0].charts
    assert chart.caption == "Not a verdict: the propensities do not fit this log."
    assert {row.look.color for group in chart.content.groups for row in group.rows} == {"seen"}
    assert [entry.label for entry in page.sections[2].charts[0].legend] == [
        "in the log",
        "weighted",
    ]
    tied = {"m": WORLD.truth + 1.0, "n": WORLD.truth - 1.0}
    equal = evaluate(WORLD.log, tied, propensities=propensities, metrics=["mae", "mse"])
    assert headline(record_of(equal)).endswith(" of the number of cells instead of about 100%.")
    naive = evaluate(WORLD.log, WORLD_APART, propensities=propensities, estimators=["naive"])
    assert "do not fit" not in headline(record_of(naive))


def test_with_a_random_sample_the_verdict_depends_on_its_drawing() -> None:
    sample = np.random.default_rng(1).choice(WORLD.truth.ravel(), 1000)
    propensities = NaiveBayesPropensity().fit(WORLD.log, mcar=sample)
    record = record_of(evaluate(WORLD.log, WORLD_APART, propensities=propensities, metrics=["mae"]))

    assert headline(record) == (
        "If the 1,000 ratings were really drawn at random and selection depends on the rating "
        "alone, m beats n by 1.000 MAE [1.000, 1.000]. (The plain average of the log says m, "
        "by 1.000.)"
    )
    assert record["no_correction"] is None


@pytest.mark.filterwarnings("ignore:.*have the same distribution as the log")
def test_weights_that_change_nothing_give_no_verdict() -> None:
    models = {"m": WORLD.truth + 1.0, "n": WORLD.truth + 2.0 * abs(NOISE)}
    rng = np.random.default_rng(1)

    def judged_with(sample: Any) -> Page:
        propensities = NaiveBayesPropensity().fit(WORLD.log, mcar=sample)
        found = evaluate(WORLD.log, models, propensities=propensities, metrics=["mae"])
        return build_page(record_of(found))

    same = judged_with(np.tile(WORLD.log.rating, 10))
    size = f"{10 * len(WORLD.log):,}"
    assert same.headline[0] == (
        "This log cannot say which model is better: the correction, which should remove "
        "self-selection, changed almost nothing.",
        True,
    )
    assert same.headline[1][0].startswith(
        f" Possible reasons: the {size} ratings were not drawn at random from all cells; selection "
        "depends on more than the rating; people do not rate what they like here. With these "
        "propensities, "
    )
    assert (
        "Unless the last reason is the right one, the order can also be the other way round, or "
        "the difference much larger." in same.title
    )
    assert "If they were really drawn at random and name" in same.assumptions[-1]
    assert "beats" not in same.title
    assert "So this result is not safe." in " ".join(same.assumptions)
    assert same.sections[0].title == "Differences"
    few = judged_with(rng.choice(WORLD.log.rating, 60))
    assert "the rating; 60 random ratings are too few to show selection; people" in few.title
    random = judged_with(rng.choice(WORLD.truth.ravel(), 60, replace=False))
    assert random.title.startswith("If the 60 ratings were really drawn at random and")


def test_even_weights_of_supplied_propensities_are_pointed_out() -> None:
    share = len(WORLD.log) / WORLD.truth.size
    found = evaluate(WORLD.log, WORLD_APART, propensities=np.full(len(WORLD.log), share))

    assert headline(record_of(found)).startswith(
        "This log cannot say which model is better: the correction, which should remove "
        "self-selection, changed almost nothing. "
        "Possible reasons: the propensities leave out why people rate; the log has ratings of "
        "almost random cells. With these propensities, "
    )


def test_a_refusal_says_what_to_do_next() -> None:
    assert build_page(judged_blindly(PAIR)).assumptions[-1] == (
        "Next step: collect ratings of random cells and score the models on them "
        "(`unskew.evaluate_random_test`). `unskew.plan_random_sample` says how many are needed"
    )


def test_equal_models_are_apart_by_at_most_the_limit() -> None:
    tied = {"m": WORLD.truth + 1.0, "n": WORLD.truth + NOISE / abs(NOISE).mean()}
    record = record_of(judged(tied))
    low, high = (
        next(row[end] for row in record["differences"] if row["estimator"] == "snips")
        for end in ("ci_low", "ci_high")
    )

    assert low < 0 < high
    shown = headline(record)
    assert f"m can be better by up to {-low:.2f}, and n by up to {high:.2f}." in shown
    few = headline(record | {"few_cells": [["mae", "snips"]]})
    assert "m and n cannot be told apart on MAE, because this log is too small: a few" in few
    assert f"{-low:.2f}" not in few


def test_equal_ips_and_snips_are_explained() -> None:
    def is_explained(record: dict[str, Any]) -> bool:
        sections = build_page(record).sections[:2]
        texts = [text for section in sections for text in (section.text, *section.notes)]
        return "IPS and SNIPS are equal by construction here" in " ".join(texts)

    assert is_explained(judged_blindly(PAIR, metrics=["mae"]))
    assert is_explained(judged_blindly({"m": PAIR["m"]}, metrics=["mae"]))
    assert not is_explained(judged_blindly(PAIR, estimators=["snips"]))
    assert not is_explained(record_of(judged(PAIR)))


def test_the_lead_says_what_is_relevant() -> None:
    lists = judged(PAIR, metrics=["precision@5"], relevance_threshold=4)
    errors = judged(PAIR, relevance_threshold=4)

    assert "top 5 (ratings of at least 4 are relevant), higher" in build_page(record_of(lists)).lead
    assert "relevant" not in build_page(record_of(errors)).lead
    assert record_of(lists)["robustness"].endswith(" is not computed for precision@5.")


@pytest.mark.filterwarnings("ignore:.*have the same distribution as the log")
def test_popular_items_speak_against_selection_by_rating_alone() -> None:
    rng = np.random.default_rng(3)
    truth = rng.integers(1, 6, size=(150, 60)).astype(float)
    popularity = np.linspace(0.05, 0.6, 60)
    for by_item, is_named in ((popularity, True), (np.full(60, 0.3), False)):
        users, items = np.nonzero(rng.random(truth.shape) < by_item)
        log = Ratings.from_arrays(users, items, truth[users, items], universe=truth.shape)
        fitted = NaiveBayesPropensity().fit(log, mcar=rng.choice(truth.ravel(), 500))
        found = evaluate(log, truth + 1.0, propensities=fitted, metrics=["mae"])
        said = "speaks against the assumption that selection depends on the rating alone"
        assert (said in " ".join(record_of(found)["warnings"])) is is_named


@pytest.mark.parametrize("kind", ["supplied", "by rating", "by user"])
@pytest.mark.filterwarnings("ignore:.*have the same distribution as the log")
def test_unexplained_item_totals_come_first_in_the_headline(kind: str) -> None:
    """No order is named: neither model is said to be ahead."""
    rng = np.random.default_rng(3)
    truth = rng.integers(1, 6, size=(150, 60)).astype(float)
    by_rating = np.array([0.1, 0.1, 0.2, 0.3, 0.4])[truth.astype(int) - 1]
    users, items = np.nonzero(rng.random(truth.shape) < by_rating * np.linspace(0.2, 1.8, 60))
    log = Ratings.from_arrays(users, items, truth[users, items], universe=truth.shape)
    propensities = {
        "supplied": by_rating,
        "by rating": NaiveBayesPropensity().fit(log, mcar=rng.choice(truth.ravel(), 500)),
        "by user": PopularityPropensity("user").fit(log),
    }[kind]
    models = {"m": truth + 1.0, "n": truth + 0.5}
    page = build_page(record_of(evaluate(log, models, propensities=propensities, metrics=["mae"])))
    says = "".join(text for text, _ in page.headline)

    if kind == "by user":
        assert says.startswith(
            "This log cannot say which model is better over all users and items. A check failed: "
            "the variance of item totals is "
        )
        assert "And the propensities never saw a rating" in says
        assert "PopularityPropensity('both')" in page.assumptions[-1]
    else:
        assert says.startswith(
            "This evaluation cannot say which model is better: a check failed. The variance of "
            "item totals is "
        )
        assert says.endswith(
            " What the propensities leave out can have to do with the errors of the models, and "
            "then the order can also be the other way round, or the difference much larger."
        )
        assert "unskew.evaluate_random_test" in page.assumptions[-1]
    assert "does not tell the two models apart if what" in page.sections[0].text
    assert "ahead" not in says + page.sections[0].title
    assert all(chart.content.sides is None for chart in page.sections[0].charts)
    if kind != "by user":
        assert "the weighted log contradicts" in page.assumptions[0]
    repeated = " ".join((*page.warnings, *page.assumptions))
    assert "the variance of item totals is" not in repeated
    titles = [section.title for section in page.sections]
    assert "Ratings in the log, before and after weighting" in titles, "not those of all cells"


def test_metrics_with_another_winner_are_named() -> None:
    models = {"even": WORLD.truth + 1.0, "rare": WORLD.truth + 4.0 * (abs(NOISE) > 1.5)}
    found = judged(models, metrics=["mae", "mse"], estimators=["naive", "snips"])
    rows = {row["metric"]: row["better"] for row in record_of(found)["differences"]}

    assert rows == {"mae": "rare", "mse": "even"}
    assert "]. But by MSE, even is ahead. (" in headline(record_of(found))
    record = record_of(found)
    record["differences"][-1]["better"] = None
    assert "]. But by MSE, rare and even cannot be told apart. (" in headline(record)
    titles = [chart.title for chart in build_page(record).sections[0].charts]
    assert titles == ["MAE: rare minus even", "MSE: rare minus even"]


def test_an_unusable_estimate_is_not_drawn() -> None:
    record = record_of(judged(PAIR)) | {"unusable": [["mae", "ips"]]}
    ahead, estimates, *_, numbers = build_page(record).sections

    for section in (ahead, estimates):
        (chart,) = section.charts
        assert chart.caption == "Not drawn, see the warnings: IPS."
        assert ", IPS" not in draw_chart(chart)[0][1]
    assert len(numbers.tables[0].rows) == 2 * 3
    everything = record | {"unusable": [["mae", name] for name in record["estimators"]]}
    assert not any(section.charts for section in build_page(everything).sections[:2])
    with pytest.raises(UsageError, match="nothing to draw: no estimate of this evaluation can be"):
        draw_evaluation(everything, None)
    assert headline(everything) == "No estimate of MAE can be trusted; see the warnings."


def test_the_odds_error_is_compared_with_a_real_log_if_no_rating_was_seen() -> None:
    models = {"m": WORLD.truth + 1.0, "n": WORLD.truth + 2.0 * abs(NOISE)}
    sample = np.random.default_rng(1).choice(WORLD.truth.ravel(), 1000)
    fitted = NaiveBayesPropensity().fit(WORLD.log, mcar=sample)
    with_sample = evaluate(WORLD.log, models, propensities=fitted, metrics=["mae"])
    known, blind, sampled = (
        record["robustness"]
        for record in (
            record_of(judged(models)),
            judged_blindly(models, metrics=["mae"]),
            record_of(with_sample),
        )
    )

    start = r"The order of m and n could flip if the odds that some cells are logged were wrong by "
    start += r"a factor of [\d.]+, in the worst case\. With sampling error, a smaller factor can "
    start += r"be enough\."
    ending = r" In a public log with ratings of random cells, self-selection that nothing "
    ending += r"corrected was a factor of about 5"
    assert re.fullmatch(start, known)
    assert re.fullmatch(rf"{start}{ending}\. So this result is not safe\.", blind)
    assert re.fullmatch(rf"{start}( That is a small factor: treat the order as open\.)?", sampled)
    assert record_of(judged(WORLD_APART))["robustness"] == (
        "However wrong the odds of being logged are, the order of m and n stays; sampling error "
        "is not included."
    )


def test_names_in_backticks_are_code_and_other_markup_is_text() -> None:
    page = Page((("h", True),), "", (), warnings=("use `a<b` or <i>", "an ` alone"))

    text = render(page)
    assert "<li>Use <code>a&lt;b</code> or &lt;i&gt;.</li>" in text
    assert "<li>An ` alone.</li>" in text


def test_how_the_intervals_were_computed_stands_at_the_end() -> None:
    page = build_page(judged_blindly(WORLD_APART, metrics=["mae"]))
    facts, uneven = dict(page.facts), build_page(judged_blindly(PAIR, metrics=["mae"]))
    sample = np.random.default_rng(1).choice(WORLD.truth.ravel(), 30)
    with pytest.warns(PropensityWarning, match="exceed 1"):
        fitted = NaiveBayesPropensity().fit(WORLD.log, mcar=sample)
    models = {"m": WORLD.truth + 1.0, "n": np.full(WORLD.truth.shape, 3.0)}
    sampled = build_page(record_of(evaluate(WORLD.log, models, propensities=fitted)))

    assert re.fullmatch(
        r"makes standard errors (up to )?[\d.]+( to [\d.]+)? times as large as with known "
        r"propensities",
        dict(sampled.facts)["estimating the propensities"],
    )
    assert "estimating the propensities" not in dict(uneven.facts), "no error becomes larger"
    assert facts["estimators"] == "Naive, IPS, SNIPS"
    assert not any("times as large" in text or "sum of" in text for text in page.assumptions)
    assert "The propensity is the probability that a rating was logged. Propensities were " in (
        page.lead
    )


def test_weights_that_add_up_are_not_taken_for_right_ones() -> None:
    def notes_of(record: dict[str, Any]) -> str:
        return " ".join(note for each in build_page(record).sections for note in each.notes)

    said = "100% does not show that they are right."
    made_so = "The sum of the weights is the number of cells by construction, which shows nothing."
    known, blind = notes_of(record_of(judged(PAIR))), notes_of(judged_blindly(PAIR))
    assert said in known
    assert said not in blind
    assert made_so not in known
    assert made_so in blind


def test_all_charts_subtract_from_the_leader_of_the_headline() -> None:
    page = build_page(record_of(run_demo().evaluation))
    ahead, *_, numbers = page.sections

    assert ahead.charts[0].title == "MAE: realist minus optimist"
    rows = [[cell.text for cell in cells] for cells in numbers.tables[1].rows]
    assert {(first, second) for first, second, *_ in rows} == {("realist", "optimist")}
    assert {row[3]: row[4][0] for row in rows} == {"Naive": "0", "IPS": "−", "SNIPS": "−"}
    assert all(float(row[5].replace("−", "-")) < float(row[6].replace("−", "-")) for row in rows)


def test_warnings_stand_directly_below_the_headline() -> None:
    record = record_of(judged(PAIR)) | {"warnings": ["mind the gap"]}
    text = render(build_page(record))

    assert text.index("</h1>") < text.index("Mind the gap.") < text.index('<p class="lead">')


def test_of_several_models_the_leader_meets_the_runner_up() -> None:
    models = {"far": WORLD.truth + 3.0, "best": WORLD.truth + 1.0, "near": WORLD.truth + 1.5}

    assert "best beats near by 0.500" in headline(record_of(judged(models)))


def test_the_estimator_that_corrects_best_speaks() -> None:
    assert main_estimator(["naive", "ips", "snips"]) == "snips"
    assert main_estimator(["ips", "dr", "naive"]) == "dr"
    assert main_estimator(["naive"]) == "naive"
    assert main_estimator(["naive", "mine"]) == "mine"


# What a page shows


def charts_of(page: Page) -> list[Chart]:
    return [chart for section in page.sections for chart in section.charts]


def test_an_evaluation_shows_all_that_it_rests_on(made: dict[str, Any]) -> None:
    page = build_page(record_of(made["evaluation"]))

    assert [section.title for section in page.sections] == [
        "Differences",
        "Estimates",
        "Ratings in the log and in all cells",
        "Is the estimate stable? The weights",
        "Is the estimate stable? Clipped weights",
        "All numbers",
    ]
    assert len(charts_of(page)) == 2 + 2 + 3


def test_the_demo_adds_the_truth_and_its_propensities(made: dict[str, Any]) -> None:
    page = build_page(record_of(made["demo"]))

    assert {"What happened", "Distribution of the weights", "Calibration"} <= {
        section.title for section in page.sections
    }
    assert any("Truth" in [key.label for key in chart.legend] for chart in charts_of(page))


def test_a_frames_evaluation_shows_what_it_has(made: dict[str, Any]) -> None:
    (first, *_) = made["grouped_evaluation"].values()
    titles = [section.title for section in build_page(record_of(first)).sections]

    assert titles == ["Differences", "Estimates", "All numbers"]


@pytest.mark.filterwarnings("ignore::unskew.errors.PropensityWarning")
def test_warnings_are_repeated_in_words() -> None:
    propensities = np.where(np.arange(len(WORLD.log)) == 0, 1e-6, 0.9)
    found = evaluate(WORLD.log, WORLD.log.rating, propensities=propensities, estimators=["snips"])

    assert any(
        "a few large weights decide" in text for text in build_page(record_of(found)).warnings
    )


def test_an_end_of_the_grid_is_pointed_out(made: dict[str, Any]) -> None:
    record = record_of(made["cross_validation"]) | {"edges": ["the grid of l2 may be too narrow"]}

    assert build_page(record).warnings == ("the grid of l2 may be too narrow",)


def test_a_search_without_propensities_claims_nothing_about_all_cells(
    made: dict[str, Any],
) -> None:
    record = record_of(made["cross_validation"])
    unweighted = build_page(record | {"is_weighted": False})

    assert "over all cells by IPS" in build_page(record).lead
    assert "on held-out ratings, unweighted" in unweighted.lead
    assert ("weights", "none, as no propensities were given") in unweighted.facts


def test_the_headline_has_the_settings_that_the_rule_chose(made: dict[str, Any]) -> None:
    record = record_of(made["cross_validation"])
    chosen = {name: record["rows"][2][name] for name in record["best_params"]}
    page = build_page(record | {"best_params": chosen, "rule": "one_standard_error"})

    assert "is the simplest within one standard error of the best" in page.title
    assert f"{record['rows'][2]['score']:.3f}" in page.title
    assert page.tiles[0].label == "chosen MSE"


def test_a_leaderboard_names_ties_failures_and_the_leaky_protocol(made: dict[str, Any]) -> None:
    record = record_of(made["leaderboard"])
    rows = [row for row in record["rows"] if row["protocol"] == "paper" and row["metric"] == "mse"]
    for row, verdict in zip(rows, ("best", "tied", "knows the test"), strict=True):
        row["verdict"] = verdict
    failure = {"protocol": "paper", "learner": "m", "reason": "no weights"}
    page = build_page(record | {"failures": [failure]})

    assert f"they need not be as good: {rows[1]['learner']}" in page.title
    assert "Without a number: m (no weights)." in page.title
    assert any(text.startswith("With 2 seeds the numbers do not show") for text in page.warnings)
    assert any("leaky uses the test" in text for text in page.warnings)
    assert "m has no number under paper: No weights." in page.warnings
    assert page.sections[0].tables[0].rows[0][1].text.endswith("*")
    rows[1]["verdict"] = "worse"
    assert "has the least MSE" in build_page(record).title
    assert "cannot tell" not in build_page(record).title


def test_the_page_of_an_interrupted_leaderboard_counts_its_seeds(made: dict[str, Any]) -> None:
    record = record_of(made["leaderboard"])
    page = build_page(record | {"n_planned": 7})

    assert page.title.startswith("After 2 of 7 seeds: of 2 learners on data, ")
    assert "The run was interrupted: every number is of 2 of 7 seeds." in page.warnings
    assert ("2 of 7", "seeds") in [(tile.value, tile.label) for tile in page.tiles]
    assert "MSE after 2 of 7 seeds" in page.sections[0].tables[0].caption


def test_a_comparison_of_learners_names_those_that_failed(made: dict[str, Any]) -> None:
    record = record_of(made["learners"])
    failed = {"learner": "m", "reason": "no weights."}

    assert record["failures"] == []
    assert "m has no number: No weights." in build_page(record | {"failures": [failed]}).warnings
    older = {name: value for name, value in record.items() if name != "failures"}
    assert build_page(older).warnings == build_page(record).warnings


def test_published_errors_stand_beside_the_best_of_every_protocol(made: dict[str, Any]) -> None:
    record = record_of(made["leaderboard"])
    published = {"learner": "MF", "metric": "mse", "value": 1.093, "source": "a paper"}
    section = build_page(record | {"published": [published]}).sections[-1]
    best = {
        row["protocol"]: row
        for row in record["rows"]
        if row["metric"] == "mse" and row["verdict"] == "best"
    }

    shown = [[cell.text for cell in row] for row in section.tables[0].rows]
    assert shown[0] == ["MF", "MSE", "1.093", "a paper"]
    assert shown[1:] == [
        [
            row["learner"],
            "MSE",
            f"{row['mean']:.3f}",
            f"best of this leaderboard: protocol {name!r}",
        ]
        for name, row in best.items()
    ]
    assert list(best) == ["paper", "leaky"]


def test_cells_of_a_table_know_what_they_are_sorted_by() -> None:
    shown = make_table("", {"n": [1234, 0.5, None, "0.31 ± 0.02", "5 of 10", "45%", "−2"]})
    cells = [cells[0] for cells in shown.rows]

    assert [cell.text for cell in cells] == [
        "1,234",
        "0.500",
        "–",
        "0.31 ± 0.02",
        "5 of 10",
        "45%",
        "−2",
    ]
    assert [cell.value for cell in cells] == [1234, 0.5, "", 0.31, "5 of 10", 45.0, -2.0]


# What other packages add


def test_another_package_adds_the_page_of_its_own_kind(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def build_poem_page(record: Any) -> Page:
        return Page(((record["verse"], True),))

    list(PAGES)
    monkeypatch.setattr(PAGES, "_declarations", dict(PAGES._declarations))
    PAGES.add("poem", build_poem_page, label="A poem", summary="Verses.")
    text = '{"kind": "poem", "version": "1", "verse": "Roses are rated."}'
    page = write_page(text, tmp_path / "poem.html").read_text()

    assert "<title>A poem: Roses are rated.</title>" in page
    assert "unskew 1" in page
    poem = SimpleNamespace(to_json=lambda: text)
    with pytest.raises(UsageError, match="a result of the kind 'poem' has no figure"):
        draw("poem", poem, None)


def test_an_estimator_of_another_package_has_its_label_and_a_default_look(
    monkeypatch: pytest.MonkeyPatch, made: dict[str, Any]
) -> None:
    class Third(Estimator):
        name = "third"

    list(ESTIMATORS)
    monkeypatch.setattr(ESTIMATORS, "_declarations", dict(ESTIMATORS._declarations))
    ESTIMATORS.add("third", Third, label="Third way", summary="Third way is another estimator.")
    text = made["evaluation"].to_json().replace('"ips"', '"third"')
    record = json.loads(text)
    html = render(build_page(record))

    assert estimator_looks(record["estimators"])["third"] == default_look(2)
    assert "Third way is another estimator." in html
    assert "a &amp; b, Third way: " in html
    assert main_estimator(["naive", "third"]) == "third"
    assert main_estimator(["third", "snips"]) == "snips"


# What is refused


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"x.json is not JSON .*Write a result with to_json\(\)"),
        (
            "[]",
            r"x.json is not a result that has a page: it does not name its kind. Kinds with",
        ),
        ('{"kind": "poem"}', "x.json is not a result that has a page: its kind is 'poem'"),
        ('{"kind": ["evaluation"]}', "its kind is"),
        (
            '{"kind": "evaluation"}',
            r"x.json is not a complete evaluation: it lacks 'metrics'. Write the result",
        ),
        ('{"kind": "cross_validation", "rows": []}', "x.json is not a complete cross validation"),
    ],
)
def test_a_file_that_is_no_result_is_refused_in_words(text: str, message: str) -> None:
    with pytest.raises(BadFileError, match=message):
        render_file(text, "x.json")


@pytest.mark.parametrize("kind", KINDS)
def test_a_record_that_lacks_a_part_is_refused_in_words(kind: str, made: dict[str, Any]) -> None:
    record = record_of(made[kind])
    for name in set(record) - {"kind"}:
        damaged = json.dumps({key: value for key, value in record.items() if key != name})
        wrong = json.dumps(record | {name: {"x": "y"}})
        for text in (damaged, wrong):
            with suppress(
                BadFileError
            ):  # or it can do without that part; anything else is a traceback
                render_file(text, "x.json")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::unskew.errors.PropensityWarning")
def test_a_million_rows_are_judged_and_reported_in_ten_seconds(tmp_path: Path) -> None:
    rng, n = np.random.default_rng(0), 1_000_000
    user, item = np.divmod(rng.choice(20_000 * 5_000, n, replace=False), 5_000)
    log = Ratings.from_codes(user, item, rng.integers(1, 6, n).astype(float), shape=(20_000, 5_000))
    models = {name: log.rating + rng.normal(size=n) for name in "ab"}
    propensities = np.clip(rng.beta(1, 8, n), 0.005, 1)

    began = time.perf_counter()
    evaluate(log, models, propensities=propensities, estimators=["naive", "snips"]).to_html(
        tmp_path / "page.html"
    )

    assert time.perf_counter() - began < 10


def test_the_headline_of_a_diagnosis_does_not_take_even_weights_for_right_ones() -> None:
    even = np.full(len(WORLD.log), len(WORLD.log) / WORLD.log.n_cells)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = diagnose(WORLD.log, {"true": WORLD.propensities, "even": even})
    said = headline(record_of(found))

    assert said.startswith("The effective sample size after weighting is ")
    assert (
        "% (true) to 100% (even) of the log, which does not say which propensities are right; "
        in said
    )


def test_a_forest_shows_the_best_models_and_says_how_many_it_left_out() -> None:
    models = {f"m{off}": WORLD.truth + off / 10 for off in range(40, 0, -1)}
    page = build_page(record_of(judged(models)))
    ahead, estimates, *_, numbers = page.sections

    assert (
        estimates.charts[0].caption
        == "The chart shows the 16 best models of 40. The table also has the other 24."
    )
    assert "m16, SNIPS" in draw_chart(estimates.charts[0])[0][1]
    assert "m17, SNIPS" not in draw_chart(estimates.charts[0])[0][1]
    assert (
        ahead.charts[0].caption
        == "The chart shows the 16 closest models of 39. The table also has the other 23."
    )
    assert [len(table.rows) for table in numbers.tables] == [40 * 3, 39 * 3]


def test_a_forest_with_room_for_all_leaves_none_out() -> None:
    sections = build_page(
        record_of(judged({"m": WORLD.truth + 1.0, "n": WORLD.truth + 2.0}))
    ).sections

    assert not any(chart.caption for section in sections[:2] for chart in section.charts)
    assert not sections[0].tables


def test_of_many_groups_the_largest_are_drawn() -> None:
    group = [place % 50 if place % 7 else 0 for place in range(len(WORLD.log))]
    columns = {"rating": WORLD.log.rating, "m": WORLD.log.rating + 1.0, "group": group}
    found = evaluate_frame(
        pd.DataFrame(columns), prediction="m", by="group", metrics=["mae"], estimators=["naive"]
    )
    page = build_page(record_of(found))

    assert (
        page.sections[0].charts[0].caption
        == "The chart shows the 48 largest groups of 50. The table also has the other 2."
    )
    assert len(page.sections[-1].tables[0].rows) == 50


def test_of_many_learners_the_best_are_drawn(made: dict[str, Any]) -> None:
    record = record_of(made["learners"])
    first = record["rows"][0]
    record["rows"] = [first | {"learner": f"l{place}", "mean": 1.0 + place} for place in range(60)]
    page = build_page(record)

    assert {
        chart.caption for chart in page.sections[0].charts if "all learners" in chart.title
    } == {"The chart shows the 48 best learners of 60. The table also has the other 12."}
    assert len(page.sections[0].tables[0].rows) == 60


def test_a_policy_without_an_interval_has_no_verdict_and_is_not_in_the_legend() -> None:
    world = simulate_impressions(300, 6, 2, logging="rankers", n_rankers=1, random_state=0)
    with pytest.warns(PropensityWarning, match="are not in the requests it is evaluated on"):
        result = evaluate_policies(world.log, {"new": world.target}, examination=[1, 0.5])
    page = build_page(record_of(result))
    values, differences = page.sections[:2]

    assert "no estimate of a policy has an interval" in page.headline[1][0]
    assert [row[-1].text for row in differences.tables[0].rows] == ["no interval"]
    assert values.charts[0].legend == ()
    assert differences.charts == ()


def test_an_order_that_a_small_error_changes_is_no_verdict() -> None:
    models = {"m": WORLD.truth + 1.0, "n": WORLD.truth + 1.02}
    record = record_of(judged(models))
    fragile = headline(record | {"fragile_pair": ["m", "n"], "flips_at": 1.2})

    assert headline(record | {"fragile_pair": ["m", "other"], "flips_at": 1.2}).startswith(
        "If the supplied propensities are right, m beats n by 0.02"
    )
    assert "m is ahead of n by 0.02" in fragile
    assert (
        "The order could flip if the odds of being logged were wrong by a small factor, 1.2 or "
        "more, in the worst case for the leader."
    ) in fragile
    record |= {"robustness": "How fragile the order is"}
    assert record["robustness"] in build_page(record).assumptions
    once = build_page(record | {"fragile_pair": ["m", "n"], "flips_at": 1.2}).assumptions
    assert record["robustness"] not in once, "the headline says it"


def test_propensities_above_one_are_named_on_the_page() -> None:
    ratings = np.r_[np.repeat(WORLD.truth.min(), 59), WORLD.truth.max()]
    with pytest.warns(PropensityWarning, match="exceed 1 and were set to 1"):
        fitted = NaiveBayesPropensity().fit(WORLD.log, mcar=ratings)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = evaluate(WORLD.log, WORLD_APART, propensities=fitted, metrics=["mae"])

    warned = " ".join(record_of(found)["warnings"])
    assert re.search(r"would set the propensity of \d of \d ratings above 1: the log has", warned)
