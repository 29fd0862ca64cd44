"""Models of other libraries: the same predictions and the same order as the library itself gives.

A test of a library skips if it is not installed. ``make test`` installs those that have wheels.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import polars as pl
import pytest
from scipy import sparse

from unskew import Ratings, evaluate, evaluate_random_test
from unskew.data import Factors
from unskew.errors import BadPredictionError, NotFittedError, UnknownIdError, UnskewWarning
from unskew.errors import UsageError as WrongUsageError
from unskew.evaluation import ADAPTERS, wrap_model
from unskew.evaluation.adapters.external import ExternalModel
from unskew.evaluation.predictions import read_predictions
from unskew.types import Matrix

N_USERS, N_ITEMS = 25, 18
RNG = np.random.default_rng(3)
USERS, ITEMS = 100 + RNG.permutation(N_USERS), 500 + RNG.permutation(N_ITEMS)
"""Ids in the order of the codes of models that know only codes; neither is sorted."""
RATING = RNG.integers(1, 6, (N_USERS, N_ITEMS)).astype(float)
IS_TRAINED = RNG.random((N_USERS, N_ITEMS)) < 0.5
IS_TRAINED[np.arange(N_USERS), np.arange(N_USERS) % N_ITEMS] = True
TRAIN = pd.DataFrame(
    {
        "user_id": USERS[np.nonzero(IS_TRAINED)[0]],
        "item_id": ITEMS[np.nonzero(IS_TRAINED)[1]],
        "rating": RATING[IS_TRAINED],
    }
)
CLICKS = sparse.csr_matrix(np.where(IS_TRAINED, RATING, 0).astype(np.float32))
LOG = Ratings.from_dense(np.where(IS_TRAINED, 0, RATING), users=USERS, items=ITEMS).take(
    np.random.default_rng(1).permutation(int((~IS_TRAINED).sum()))
)


@dataclass(frozen=True)
class Case:
    """A fitted model, and what its library predicts for every pair of codes."""

    model: Any
    predicted: Matrix
    scores: Matrix | None = None
    """What ranks, if that differs from what is predicted."""

    @property
    def ranking_scores(self) -> Matrix:
        return self.predicted if self.scores is None else self.scores


def by_pairs(predict: Callable[[Any, Any], Any], *, by_codes: bool = False) -> Matrix:
    """One call for each pair of ids, or of codes."""
    users, items = (range(N_USERS), range(N_ITEMS)) if by_codes else (USERS, ITEMS)
    return np.array([[float(predict(user, item)) for item in items] for user in users])


def fit_surprise(kind: str, **options: Any) -> Case:
    surprise = pytest.importorskip("surprise", reason="scikit-surprise is not installed")
    data = surprise.Dataset.load_from_df(TRAIN, surprise.Reader(rating_scale=(1, 5)))
    model = getattr(surprise, kind)(**options).fit(data.build_full_trainset())
    return Case(
        model,
        by_pairs(lambda user, item: model.predict(user, item).est),
        by_pairs(lambda user, item: model.predict(user, item, clip=False).est),
    )


def fit_implicit(module: str, kind: str) -> Case:
    pytest.importorskip("implicit", reason="implicit is not installed")
    model = getattr(pytest.importorskip(f"implicit.{module}"), kind)(factors=5, random_state=0)
    model.fit(CLICKS, show_progress=False)
    scores = np.empty((N_USERS, N_ITEMS))
    for user in range(N_USERS):
        items, values = model.recommend(
            user, CLICKS[user], N=N_ITEMS, filter_already_liked_items=False
        )
        scores[user, items] = values
    return Case(wrap_model(model, users=USERS, items=ITEMS), scores)


def fit_lightfm(*, with_features: bool) -> Case:
    lightfm = pytest.importorskip("lightfm", reason="lightfm is not installed: it has no wheels")
    features: dict[str, Any] = {}
    if with_features:
        tags = sparse.random(N_ITEMS, 4, 0.5, random_state=0)
        features = {"item_features": sparse.hstack([sparse.eye(N_ITEMS), tags]).tocsr()}
    model = lightfm.LightFM(no_components=4, loss="warp", random_state=0)
    model.fit(CLICKS.tocoo(), epochs=5, **features)
    user, item = np.indices((N_USERS, N_ITEMS)).reshape(2, -1)
    scores = model.predict(user, item, **features).reshape(N_USERS, N_ITEMS)
    return Case(wrap_model(model, users=USERS, items=ITEMS, **features), scores)


def fit_cmfrec(kind: str, *, with_ids: bool, **options: Any) -> Case:
    cmfrec = pytest.importorskip("cmfrec", reason="cmfrec is not installed: it has no wheels")
    model = getattr(cmfrec, kind)(**options)
    columns = {"user_id": "UserId", "item_id": "ItemId"}
    columns["rating"] = "Value" if "implicit" in kind else "Rating"
    model.fit(TRAIN.rename(columns=columns) if with_ids else CLICKS.tocoo())
    user, item = np.indices((N_USERS, N_ITEMS)).reshape(2, -1)
    pairs = (USERS[user], ITEMS[item]) if with_ids else (user, item)
    predicted = model.predict(*pairs).reshape(N_USERS, N_ITEMS)
    return Case(model if with_ids else wrap_model(model, users=USERS, items=ITEMS), predicted)


def fit_cornac(kind: str, **options: Any) -> Case:
    cornac = pytest.importorskip("cornac", reason="cornac is not installed")
    data = cornac.data.Dataset.from_uir(TRAIN.itertuples(index=False), seed=0)
    model = getattr(cornac.models, kind)(**options, verbose=False).fit(data)
    codes = [[mapping[each] for each in ids] for mapping, ids in
             ((data.uid_map, USERS), (data.iid_map, ITEMS))]  # fmt: skip
    return Case(
        model,
        np.array([[model.rate(user, item) for item in codes[1]] for user in codes[0]]),
        np.array([np.asarray(model.score(user))[codes[1]] for user in codes[0]]),
    )


def fit_lenskit(kind: str, *, predicts: bool) -> Case:
    lenskit = pytest.importorskip("lenskit.pipeline", reason="lenskit 2025 is not installed")
    from lenskit import als, knn, predict, score
    from lenskit.data import from_interactions_df

    scorer = {"als": als.BiasedMFScorer, "knn": knn.ItemKNNScorer}[kind]()
    pipeline = (lenskit.predict_pipeline if predicts else lenskit.topn_pipeline)(scorer)
    pipeline.train(from_interactions_df(TRAIN))
    run = predict if predicts else score
    return Case(pipeline, np.array([run(pipeline, user, ITEMS).scores() for user in USERS]))


def fit_old_lenskit() -> Case:
    algorithms = pytest.importorskip("lenskit.algorithms.bias", reason="lenskit 0.14 not installed")
    frame = TRAIN.rename(columns={"user_id": "user", "item_id": "item"})
    model = algorithms.Bias().fit(frame)
    return Case(model, np.array([model.predict_for_user(user, ITEMS) for user in USERS]))


def fit_torch() -> Case:
    torch = pytest.importorskip("torch", reason="torch is not installed")

    class TwoTower(torch.nn.Module):  # type: ignore[name-defined, misc]
        def __init__(self) -> None:
            super().__init__()
            self.user = torch.nn.Embedding(N_USERS, 3)
            self.item = torch.nn.Embedding(N_ITEMS, 3)
            self.dropout = torch.nn.Dropout(0.5)

        def forward(self, user: Any, item: Any) -> Any:
            return torch.tanh(self.dropout(self.user(user)) * self.item(item)).sum(-1)

    torch.manual_seed(0)
    module = TwoTower()
    both = [each.weight.detach().numpy() for each in (module.user, module.item)]
    scores = np.tanh(both[0][:, None] * both[1]).sum(-1)
    return Case(wrap_model(module, users=USERS, items=ITEMS), scores)


AGE, GENRE = RNG.normal(size=N_USERS), RNG.integers(0, 3, N_ITEMS)


def fit_sklearn(form: str) -> Case:
    from sklearn.compose import make_column_transformer
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.linear_model import LinearRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder

    row, column = np.nonzero(IS_TRAINED)
    user, item = np.indices((N_USERS, N_ITEMS)).reshape(2, -1)
    words = np.array(["crime", "drama", "west"])[GENRE]
    if form in ("arrays", "classes"):
        features, every = (np.column_stack([AGE[u], GENRE[i]]) for u, i in
                           ((row, column), (user, item)))  # fmt: skip
        tables: dict[str, Any] = {"user_features": AGE[:, None], "item_features": GENRE[:, None]}
        ids: dict[str, Any] = {"users": USERS, "items": ITEMS}
        model: Any = LinearRegression() if form == "arrays" else RandomForestClassifier(5)
        model.fit(features, RATING[IS_TRAINED])
        predicted = (
            model.predict(every)
            if form == "arrays"
            else model.predict_proba(every) @ model.classes_
        )
    else:
        make = {"pandas": pd.DataFrame, "polars": pl.DataFrame}[form]
        tables = {
            "user_features": make({"user_id": USERS, "unused": AGE, "age": AGE}),
            "item_features": make({"item_id": ITEMS, "genre": words}),
        }
        ids = {}
        dense = OneHotEncoder(sparse_output=False)  # scikit-learn 1.6 joins no sparse ones
        encoder = make_column_transformer((dense, ["genre"]), remainder="passthrough")
        model = make_pipeline(encoder, LinearRegression())
        model.fit(make({"genre": words[column], "age": AGE[row]}), RATING[IS_TRAINED])
        predicted = model.predict(make({"genre": words[item], "age": AGE[user]}))
    return Case(wrap_model(model, **tables, **ids), predicted.reshape(N_USERS, N_ITEMS))


FACTORS: dict[str, Callable[[], Case]] = {
    "Surprise SVD": lambda: fit_surprise("SVD", n_factors=4, random_state=0),
    "Surprise SVD without offsets": lambda: fit_surprise("SVD", biased=False, random_state=0),
    "Surprise SVD++": lambda: fit_surprise("SVDpp", n_factors=4, random_state=0),
    "Surprise NMF": lambda: fit_surprise("NMF", n_factors=4, random_state=0),
    "Surprise offsets": lambda: fit_surprise("BaselineOnly", verbose=False),
    "implicit ALS": lambda: fit_implicit("als", "AlternatingLeastSquares"),
    "implicit BPR": lambda: fit_implicit("bpr", "BayesianPersonalizedRanking"),
    "implicit LMF": lambda: fit_implicit("lmf", "LogisticMatrixFactorization"),
    "LightFM": lambda: fit_lightfm(with_features=False),
    "LightFM with features": lambda: fit_lightfm(with_features=True),
    "cmfrec": lambda: fit_cmfrec("CMF", with_ids=True, k=4, verbose=False),
    "cmfrec of arrays": lambda: fit_cmfrec("CMF", with_ids=False, k=4, verbose=False),
    "cmfrec of clicks": lambda: fit_cmfrec("CMF_implicit", with_ids=True, k=4, verbose=False),
    "Cornac MF": lambda: fit_cornac("MF", k=4, seed=0),
    "Cornac MF without offsets": lambda: fit_cornac("MF", k=4, use_bias=False, seed=0),
    "Cornac BPR": lambda: fit_cornac("BPR", k=4, seed=0),
}
OTHERS: dict[str, Callable[[], Case]] = {
    "Surprise KNN": lambda: fit_surprise("KNNWithMeans", verbose=False),
    "Surprise KNN, 3 neighbours": lambda: fit_surprise("KNNBasic", k=3, min_k=2, verbose=False),
    "Surprise KNN of items": lambda: fit_surprise(
        "KNNBasic", k=5, sim_options={"user_based": False}, verbose=False
    ),
    "Surprise KNN with offsets": lambda: fit_surprise(
        "KNNBaseline", k=4, sim_options={"name": "pearson_baseline"}, verbose=False
    ),
    "Surprise KNN of items with offsets": lambda: fit_surprise(
        "KNNBaseline", min_k=3, sim_options={"user_based": False}, verbose=False
    ),
    "Surprise KNN of scaled ratings": lambda: fit_surprise(
        "KNNWithZScore", k=6, min_k=4, sim_options={"name": "cosine"}, verbose=False
    ),
    "Surprise slope one": lambda: fit_surprise("SlopeOne"),
    "cmfrec popular": lambda: fit_cmfrec("MostPopular", with_ids=True, user_bias=True),
    "cmfrec popular of arrays": lambda: fit_cmfrec("MostPopular", with_ids=False, user_bias=True),
    "Cornac PMF": lambda: fit_cornac("PMF", k=4, seed=0),
    "Cornac KNN": lambda: fit_cornac("UserKNN", seed=0),
    "LensKit ALS": lambda: fit_lenskit("als", predicts=False),
    "LensKit KNN": lambda: fit_lenskit("knn", predicts=True),
    "LensKit 0.14": fit_old_lenskit,
    "PyTorch": fit_torch,
    "scikit-learn arrays": lambda: fit_sklearn("arrays"),
    "scikit-learn classes": lambda: fit_sklearn("classes"),
    "scikit-learn pandas": lambda: fit_sklearn("pandas"),
    "scikit-learn polars": lambda: fit_sklearn("polars"),
}
CACHE: dict[str, Case] = {}


def fit(name: str) -> Case:
    """A case, fitted once; warnings of the other library do not matter here."""
    if name not in CACHE:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            CACHE[name] = (FACTORS | OTHERS)[name]()
    return CACHE[name]


each_case = pytest.mark.parametrize("name", [*FACTORS, *OTHERS])


def align(matrix: Matrix) -> Matrix:
    """From the order of codes to that of the log's vocabulary."""
    rows, columns = (
        [ids.tolist().index(each) for each in vocabulary.tolist()]
        for ids, vocabulary in ((USERS, LOG.users), (ITEMS, LOG.items))
    )
    return matrix[np.ix_(rows, columns)]


# The same as the library


@each_case
def test_predictions_are_those_of_the_library(name: str) -> None:
    case = fit(name)

    values = read_predictions("m", case.model, LOG).values(LOG)

    assert values == pytest.approx(align(case.predicted)[LOG.user, LOG.item], rel=1e-6, abs=1e-6)


@each_case
def test_the_order_of_items_is_that_of_the_library(name: str) -> None:
    case = fit(name)
    scores = align(case.ranking_scores)[LOG.user]
    own = scores[np.arange(len(LOG)), LOG.item][:, None]

    above = read_predictions("m", case.model, LOG).positions(LOG, n_items=N_ITEMS, top=None).above

    nearly = 1e-6 * np.maximum(1, np.abs(own))
    assert (above >= (scores > own + nearly).sum(1)).all()
    assert (above <= (scores > own - nearly).sum(1)).all()


@each_case
def test_a_model_can_be_evaluated_in_one_call(name: str) -> None:
    case = fit(name)
    options: dict[str, Any] = {
        "estimators": ["naive"],
        "metrics": ["recall@5"],
        "relevance_threshold": 4,
    }

    result = evaluate(LOG, {"m": case.model}, **options)

    assert result.risk("m", metric="recall@5", estimator="naive").estimate == pytest.approx(
        evaluate(LOG, {"m": align(case.ranking_scores)}, **options)
        .risk("m", metric="recall@5", estimator="naive")
        .estimate,
        abs=0.02,
    )


@pytest.mark.parametrize("name", FACTORS)
def test_models_of_factors_rank_as_factors(name: str) -> None:
    model = fit(name).model
    wrapped = model if isinstance(model, ExternalModel) else wrap_model(model)

    assert isinstance(wrapped.scorer(LOG.users, LOG.items), Factors)


@pytest.mark.parametrize("name", ["Surprise SVD", "Cornac MF", "Cornac PMF", "scikit-learn arrays"])
def test_doubly_robust_estimates_use_the_librarys_predictions_in_every_cell(name: str) -> None:
    case = fit(name)
    options: dict[str, Any] = {
        "estimators": ["dr"],
        "metrics": ["mse"],
        "propensities": np.full(len(LOG), 0.5),
        "imputation": np.full((N_USERS, N_ITEMS), 3.0),
    }

    estimates = [
        evaluate(LOG, {"m": model}, **options).risk("m", metric="mse", estimator="dr").estimate
        for model in (case.model, align(case.predicted))
    ]

    assert estimates[0] == pytest.approx(estimates[1], rel=1e-6)


def test_a_random_test_takes_them_too() -> None:
    case = fit("PyTorch")

    tables = [
        evaluate_random_test(LOG, model, metrics=["auc"], relevance_threshold=4).to_columns()
        for model in (case.model, align(case.predicted).astype(np.float32))
    ]

    assert tables[0] == tables[1]


def test_dropout_is_off_while_a_module_predicts_and_on_again_afterwards() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    module = torch.nn.Bilinear(1, 1, 1)

    class Pairs(torch.nn.Module):  # type: ignore[name-defined, misc]
        def forward(self, user: Any, item: Any) -> Any:
            assert not self.training
            return module(user[:, None].float(), item[:, None].float())

    pairs = Pairs()
    model = wrap_model(pairs, users=USERS, items=ITEMS)

    assert model.predict(USERS[:2], ITEMS[:2]).shape == (2,)
    assert pairs.training


# Unknown users and items


def extend(log: Ratings) -> Ratings:
    """The log with ratings of a new user and of a new item."""
    more = pd.DataFrame(
        {"user_id": [9001, USERS[0]], "item_id": [ITEMS[0], 9002], "rating": [3.0, 4.0]}
    )
    return Ratings.from_frame(pd.concat([log.to_frame("pandas"), more])[list(more)])


@pytest.mark.parametrize(
    "name",
    [
        "Surprise SVD",
        "Surprise SVD without offsets",
        "Surprise KNN",
        "Surprise KNN of items",
        "Surprise KNN with offsets",
        "Surprise KNN of items with offsets",
        "Surprise offsets",
        "cmfrec",
    ],
)
def test_a_library_with_a_default_uses_it_and_a_warning_says_so(name: str) -> None:
    longer, model = extend(LOG), fit(name).model
    with pytest.warns(UnskewWarning, match=r"the user or the item in 2 of \d+ pairs: its own def"):
        values = read_predictions("m", model, longer).values(longer)

    pairs = [(9001, ITEMS[0]), (USERS[0], 9002)]
    own = [
        float(np.ravel(model.predict(*pair))[0]) if name == "cmfrec" else model.predict(*pair).est
        for pair in pairs
    ]
    assert values[-2:] == pytest.approx(own, rel=1e-6)
    with pytest.warns(UnskewWarning, match="not know 1 user and 1 item: its own def") as caught:
        positions = read_predictions("m", model, longer).positions(
            longer, n_items=longer.n_items, top=None
        )
    assert caught[0].filename == __file__
    if name.startswith("Surprise"):
        scores = [model.predict(9001, item, clip=False).est for item in longer.items.tolist()]
        expected = np.sum(np.array(scores) > scores[int(longer.item[-2])])
        assert positions.above[-2] == expected


@pytest.mark.parametrize("name", ["implicit ALS", "Cornac MF", "PyTorch", "cmfrec of clicks"])
@pytest.mark.parametrize("metric", ["mae", "recall@3"])
@pytest.mark.filterwarnings("ignore:the scores of")
def test_any_other_library_names_what_it_does_not_know(name: str, metric: str) -> None:
    with pytest.raises(UnknownIdError, match=r"does not know 1 (user|item) of the log: 900[12]\."):
        evaluate(
            extend(LOG),
            fit(name).model,
            metrics=[metric],
            estimators=["naive"],
            universe="log",
            relevance_threshold=4,
        )


def test_lenskit_names_the_first_pair_without_a_score() -> None:
    longer, model = extend(LOG), fit("LensKit ALS").model

    with pytest.raises(UnknownIdError, match=r"no score for .* of user \d+; the first is \d+\."):
        read_predictions("m", model, longer).values(longer)
    values = read_predictions("m", wrap_model(model, fallback=2.5), longer).values(longer)
    assert values[-2:].tolist() == [2.5, 2.5]


def test_a_fallback_can_rank_unknown_items_last() -> None:
    model = fit("PyTorch").model
    known = USERS[0], ITEMS[:3]
    wrapped = wrap_small(fallback=-math.inf)

    scores = wrapped.scorer([known[0], 9001], [*known[1], 9002])(np.array([0, 1], np.int32))

    assert scores[0, :3] == pytest.approx(model.predict([USERS[0]] * 3, ITEMS[:3]))
    assert np.isneginf(scores[0, 3])
    assert np.isneginf(scores[1]).all()
    assert wrap_small(fallback=2.0).predict([USERS[0], 9001], [9002, ITEMS[0]]).tolist() == [2, 2]


def wrap_small(**options: Any) -> ExternalModel:
    fitted = fit("PyTorch").model
    torch = pytest.importorskip("torch")

    class Same(torch.nn.Module):  # type: ignore[name-defined, misc]
        def forward(self, user: Any, item: Any) -> Any:
            return torch.as_tensor(fitted.predict_pairs(user.numpy(), item.numpy()))

    return wrap_model(Same(), users=USERS, items=ITEMS, **options)


@pytest.mark.parametrize("name", ["Surprise SVD", "implicit ALS"])
def test_ids_of_another_type_are_an_error_even_with_a_default(name: str) -> None:
    text = LOG.to_frame("pandas").astype({"user_id": str, "item_id": str})

    with pytest.raises(
        UnknownIdError, match=r"\(text, where a number such as 1\d\d is known\)\. Fit it to the s"
    ):
        evaluate(Ratings.from_frame(text), fit(name).model, metrics=["dcg@3"], universe="log",
                 estimators=["naive"])  # fmt: skip


# What the caller has to say


class Plain:
    """A class that pretends to come from the module of another library."""


def pretend(module: str, **attributes: Any) -> Any:
    return type("Model", (Plain,), {"__module__": module} | attributes)()


@pytest.mark.parametrize(
    ("module", "attributes"),
    [
        ("implicit.cpu.als", {"user_factors": np.ones((2, 1)), "item_factors": np.ones((3, 1))}),
        ("lightfm.lightfm", {"user_embeddings": 1, "item_embeddings": 1}),
        ("cmfrec", {"user_mapping_": [], "item_mapping_": []}),
        ("torch.nn.modules.linear", {"__call__": lambda self, users, items: 0}),
    ],
)
def test_a_model_that_knows_only_codes_says_the_line_to_write(
    module: str, attributes: dict[str, Any]
) -> None:
    with pytest.raises(
        BadPredictionError,
        match=r"Model of \w+ knows users and items only by codes .* Pass "
        r"unskew\.evaluation\.wrap_model\(model, users=\.\.\., items=\.\.\.\) with the ids",
    ):
        evaluate(LOG, {"a": pretend(module, **attributes)}, estimators=["naive"])


def test_a_regressor_says_that_it_needs_features() -> None:
    from sklearn.linear_model import LinearRegression

    with pytest.raises(BadPredictionError, match=r"LinearRegression of scikit-learn predicts from"):
        evaluate(LOG, LinearRegression(), estimators=["naive"])


def test_named_features_must_be_in_one_table_each() -> None:
    from sklearn.linear_model import LinearRegression

    model = LinearRegression().fit(pd.DataFrame({"age": [1.0, 2.0]}), [1.0, 2.0])
    users = pd.DataFrame({"user_id": USERS, "age": AGE})
    items = pd.DataFrame({"item_id": ITEMS, "age": GENRE})

    with pytest.raises(
        BadPredictionError, match="fitted to the column 'age', which is in both user_features and"
    ):
        wrap_model(model, user_features=users, item_features=items)
    with pytest.raises(
        BadPredictionError, match="fitted to the column 'age', which is in neither user_fe"
    ):
        wrap_model(
            model,
            users=USERS,
            items=ITEMS,
            user_features=AGE[:, None],
            item_features=AGE[:18, None],
        )
    with pytest.raises(BadPredictionError, match=r"the ids of the items are missing\. Pass items="):
        wrap_model(model, user_features=users, item_features=AGE[:18, None])
    with pytest.raises(BadPredictionError, match=r"user_features has shape \(3, 1\) for 25 ids"):
        wrap_model(model, users=USERS, user_features=AGE[:3, None], item_features=items)


def test_ids_of_the_wrong_number() -> None:
    model = pretend("implicit.cpu", user_factors=np.ones((2, 1)), item_factors=np.ones((3, 1)))

    with pytest.raises(BadPredictionError, match=r"has factors of 2 users, but users=\.\.\. lists"):
        wrap_model(model, users=USERS, items=ITEMS)


@pytest.mark.parametrize(
    ("module", "options", "message"),
    [
        ("surprise.x", {"users": USERS}, r"Surprise do not take users\. They keep their own ids"),
        ("implicit.x", {"user_features": AGE}, r"implicit do not take user_features\. Leave it"),
        ("implicit.x", {"fallback": math.nan}, "fallback must be a number; got nan"),
        ("implicit.x", {"fallback": True}, "fallback must be a number; got True"),
    ],
)
def test_arguments_that_do_not_fit(module: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(WrongUsageError, match=message):
        wrap_model(pretend(module), **options)


@pytest.mark.parametrize("module", ["surprise.x", "cornac.models.mf", "implicit.als"])
def test_a_model_that_is_not_fitted(module: str) -> None:
    with pytest.raises(NotFittedError, match="this Model is not fitted: it has no "):
        evaluate(LOG, pretend(module, item_factors=None), estimators=["naive"])


@pytest.mark.parametrize(
    ("module", "message"),
    [
        ("implicit.nearest_neighbours", "has no factors: it scores items from a matrix"),
        ("lenskit.als", r"a Model of LensKit cannot be read .* Pass a trained pipeline"),
        ("pyspark.ml.feature", r"a Model of Spark cannot be read .* Pass a fitted ALSModel"),
    ],
)
def test_a_model_of_a_known_library_that_cannot_predict(module: str, message: str) -> None:
    with pytest.raises(BadPredictionError, match=message):
        evaluate(LOG, pretend(module), estimators=["naive"])


def test_what_no_library_is_known_of() -> None:
    with pytest.raises(
        BadPredictionError,
        match=r"a Plain is not a model of a known library\. .*: cmfrec, Cornac, implicit, ",
    ):
        wrap_model(Plain())


def test_a_class_of_the_caller_that_predicts_ids_stays_as_it_is() -> None:
    from sklearn.base import BaseEstimator

    class Own(BaseEstimator):  # type: ignore[misc]
        def predict(self, users: npt.NDArray[Any], items: npt.NDArray[Any]) -> Any:
            return (users + items).astype(float)

    values = read_predictions("m", Own(), LOG).values(LOG)

    assert values.tolist() == (LOG.users[LOG.user] + LOG.items[LOG.item]).tolist()


def test_every_adapter_says_how_it_is_recognised_and_what_it_takes() -> None:
    for declaration in ADAPTERS.values():
        assert declaration.traits["module"]
        assert set(declaration.traits["takes"]) <= {
            "users",
            "items",
            "user_features",
            "item_features",
        }


# Evaluators of other libraries


@pytest.mark.filterwarnings("ignore:OpenBLAS is configured")
def test_rankings_are_judged_as_by_implicits_own_evaluator() -> None:
    """Its precision divides by min(k, relevant items): recall per positive if none has more."""
    implicit = pytest.importorskip("implicit", reason="implicit is not installed")
    evaluation = pytest.importorskip("implicit.evaluation")
    rng = np.random.default_rng(4)
    shape = (50, 70)
    trained = rng.random(shape) < 0.15
    tested = (rng.random(shape) < 0.06) & ~trained
    assert 0 < tested.sum(axis=1).max() <= 10
    model = implicit.als.AlternatingLeastSquares(factors=6, random_state=0, use_gpu=False)
    matrices = [sparse.csr_matrix(mask.astype(np.float32)) for mask in (trained, tested)]
    model.fit(matrices[0], show_progress=False)
    expected = evaluation.ranking_metrics_at_k(model, *matrices, K=10, show_progress=False)
    train, test = (
        Ratings.from_codes(*np.nonzero(mask), np.ones(mask.sum()), shape=shape)
        for mask in (trained, tested)
    )

    result = evaluate(
        test,
        {"als": wrap_model(model, users=test.users, items=test.items)},
        metrics=["recall_per_positive@10", "ndcg@10", "map@10"],
        estimators=["naive"],
        exclude=train,
    )

    assert [risk.estimate for risk in result] == pytest.approx(
        [expected["precision"], expected["ndcg"], expected["map"]], rel=1e-9
    )


def fit_line(n_features: int) -> Any:
    from sklearn.linear_model import LinearRegression

    rng = np.random.default_rng(0)
    return LinearRegression().fit(rng.random((9, n_features)), rng.random(9))


@pytest.mark.parametrize("bad", [np.nan, "old"])
def test_features_that_the_model_refuses_are_named_with_the_model(bad: object) -> None:
    model = wrap_model(
        fit_line(2),
        users=["a", "b"],
        items=["x", "y"],
        user_features=np.array([[1.0], [bad]], dtype=object),
        item_features=np.array([[1.0], [2.0]]),
    )

    with pytest.raises(BadPredictionError, match=r"failed to predict 2 pairs \(ValueError: "):
        model.predict(["a", "b"], ["x", "y"])


def test_too_few_features_are_named_with_the_model() -> None:
    model = wrap_model(
        fit_line(3), users=["a"], items=["x"], user_features=[[1.0]], item_features=[[1.0]]
    )

    with pytest.raises(BadPredictionError, match=r"LinearRegression of scikit-learn failed .* 3 "):
        model.predict(["a"], ["x"])


@pytest.mark.parametrize("ids", [{"a": 0, "b": 1}, {"a", "b"}], ids=["dictionary", "set"])
def test_ids_without_an_order_of_codes_are_refused(ids: Any) -> None:
    with pytest.raises(WrongUsageError, match=r"users is a .*order of the codes. Pass a list"):
        wrap_model(
            fit_line(2), users=ids, items=["x"], user_features=[[1.0]] * 2, item_features=[[1.0]]
        )
