"""What a workflow is asked to do: one record for each, filled from the options of a command.

Files are named by their paths; ``-`` is standard input. Nothing heavy is imported here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from unskew.propensity import PROPENSITY_MODELS

if TYPE_CHECKING:
    from unskew.data.impressions import ProbabilityKind
    from unskew.data.parts import SplitUnit
    from unskew.data.universe import UniverseLike
    from unskew.data.weights import WeightTransform
    from unskew.io.duckdb_files import Reader
    from unskew.io.log_files import FileDuplicates, OnBad
    from unskew.io.sources import Format


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRequest:
    """A log in a file, its columns, and what to do with rows that cannot be used."""

    log: str
    format: Format | None = None
    """By default the extension of the file tells the format."""
    columns: tuple[str, ...] = ()
    """Names of the columns of a text file without a header."""
    user: str | None = None
    item: str | None = None
    rating: str | None = None
    """Names of columns; by default those with a common name. The rating can also be a number."""
    universe: UniverseLike = None
    on_bad: OnBad = "raise"
    duplicates: FileDuplicates = "raise"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImpressionRequest(LogRequest):
    """A log of shown items in a file, and its columns."""

    request: str | None = None
    position: str | None = None
    reward: str | None = None
    probability: str | None = None
    probability_is: ProbabilityKind | None = None
    repeats: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRequest(ImpressionRequest):
    """Policies to evaluate on a log of shown items, and how."""

    target: Mapping[str, str] = field(default_factory=dict)
    """By policy: a column of the log with its probabilities."""
    ranking: Mapping[str, str] = field(default_factory=dict)
    """By policy: a column of the log with the position that it gives each shown item."""
    model: Mapping[str, str] = field(default_factory=dict)
    """By policy: the file of a saved model, which ranks the candidates."""
    logging: Literal["column", "uniform"] = "column"
    arms: tuple[tuple[str, float | None], ...] = ()
    """The rankings of an A/B test: columns of positions, and shares of requests."""
    candidates: str | None = None
    """A file of requests and items; by default every item of the log is a candidate."""
    exclude: str | None = None
    """The file of a log of ratings whose items are no candidates of their users."""
    estimators: tuple[str, ...] = ()
    examination: tuple[float, ...] = ()
    estimate_examination: bool = False
    """Whether the examination curve is estimated from the log, with its error."""
    cell: tuple[str, ...] = ("user", "item")
    """What has one relevance, for an estimated examination curve."""
    regression: tuple[str, ...] = ()
    slot_worth: Literal["sum", "dcg"] = "sum"
    cluster: Literal["user", "request"] = "user"
    level: float = 0.95
    transform: WeightTransform | None = None
    reader: Reader = "auto"


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionBiasRequest(ImpressionRequest):
    """A log of shown items, and how to estimate the examination of its positions."""

    cell: tuple[str, ...] = ("user", "item")
    method: Literal["conditional", "all_pairs", "swaps"] = "conditional"
    swap: str | None = None
    """A column of the log: the lower position of the swap."""
    cluster: str = "cell"
    level: float = 0.95
    random_state: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationRequest(ImpressionRequest):
    """A log to check, and perhaps the log that models were trained on."""

    impressions: bool = False
    """Whether it is a log of shown items."""

    train: str | None = None
    """The file of the training log; its columns have the names that those of the log have."""
    timestamp: str | None = None
    """The column of times; by default the one with a common name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitRequest(LogRequest):
    """A log to split into a training part and a test part."""

    share: float = 0.2
    """The share of the test part."""
    by: SplitUnit = "random"
    timestamp: str | None = None
    """The column of times; by default the one with a common name, if the split needs it."""
    random_state: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledLogRequest(LogRequest):
    """A log, and perhaps ratings of cells drawn at random, for models that learn from them."""

    mcar: str | None = None
    """The file with these ratings."""
    random_state: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightedLogRequest(SampledLogRequest):
    """A log whose cells have propensities."""

    propensities: str | None = None
    """A column, the file of a saved model, or the name of a model to fit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationRequest(WeightedLogRequest):
    """Models to evaluate on a log, and how."""

    held_out: float | None = None
    """The log is a random part with this share of the log that the propensities are of."""
    predictions: Mapping[str, str] = field(default_factory=dict)
    """By model: a file with users, items and predictions, or a saved model."""
    prediction: tuple[str, ...] = ()
    """Columns of the log that hold predictions."""
    position: tuple[str, ...] = ()
    """Columns of positions: one for each column of predictions, then one for each file.

    Without columns of predictions, one name may stand for all files.
    """
    model: Mapping[str, str] = field(default_factory=dict)
    """By name: files of saved models."""
    exclude: str | None = None
    """The file of a log whose cells are not ranked and leave the test, such as the training log."""
    candidates: str | None = None
    """A file with the items that are ranked; if it has users too, with those of each user."""
    timestamp: str | None = None
    """The column of times in the log and in ``exclude``; only read if it is named."""
    metrics: tuple[str, ...] = ("mse", "mae")
    estimators: tuple[str, ...] = ("naive", "ips", "snips")
    cluster: Literal["auto", "user", "item", "both", "cell"] = "auto"
    propensities_known: bool = False
    """Whether to leave the error of estimated propensities out of the intervals."""
    level: float = 0.95
    weight_transform: WeightTransform | None = None
    relevance_threshold: float | None = None
    by: str | None = None
    reader: Reader = "auto"
    engine: str = "auto"
    """Where saved models rank their items; see :mod:`unskew.engines`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingRequest(WeightedLogRequest):
    """A recommender to fit to a log, perhaps with settings chosen by cross-validation."""

    learner: str = "mf"
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the recommender that differ from its defaults."""
    checkpoint: str | None = None
    engine: str = "auto"
    """Where the model is fitted; see :mod:`unskew.engines`."""
    grid: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    """Values to try in a cross-validation, by setting. Without any, the model is fitted once."""
    n_folds: int = 4
    n_repeats: int = 1
    rule: Literal["best", "one_standard_error"] = "best"
    halving: bool = False
    metric: str | None = None
    score: str | None = None
    """The estimator of the criterion; by default ``ips`` with propensities, else ``naive``."""
    relevance_threshold: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureRequest(SampledLogRequest):
    """A log, and perhaps files with features of its users and items."""

    user_features: str | None = None
    item_features: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PropensityRequest(FeatureRequest):
    """A propensity model to fit to a log."""

    model: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    cross_fit: int | None = None
    """Folds that are held out in turn; None fits one model to the whole log."""
    scale: bool = False
    """Whether the propensities of all cells are scaled to add up to the number of ratings."""
    share: float | None = None
    """The log is a random part with this share of a larger log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DiagnosisRequest(FeatureRequest):
    """Propensities of a log to diagnose."""

    propensities: tuple[str, ...]
    """Columns, files of saved models, or names of models to fit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchRequest(LogRequest):
    """A growing log to watch, and the file that keeps what was counted."""

    state: str
    planned_size: int | None = None
    """Needed unless the state exists."""
    propensities: str | None = None
    """A column of the log."""
    prediction: tuple[str, ...] = ()
    """Columns of the log that hold predictions."""
    metrics: tuple[str, ...] = ("mse", "mae")
    level: float = 0.95
    unit: Literal["row", "user"] = "row"
    look_every: int | None = None
    has_unobserved: bool = False
    max_weight: float | None = None
    max_delta: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderboardRequest(WeightedLogRequest):
    """A log with a random test on which all learners are ranked, and how."""

    test: str | None = None
    """The file of the random test; its columns have the names that those of the log have."""
    learners: tuple[str, ...] = ()
    """Labels of learners; by default all."""
    protocols: tuple[str, ...] = ()
    """By default those that the data allow."""
    n_repeats: int = 10
    level: float = 0.95


def list_named_models(*, with_features: bool = True) -> dict[str, str]:
    """Models that can be fitted by name, each with its summary.

    These are all but wrappers and models that cannot be saved. ``with_features=False`` leaves out
    those that need features of users and items.
    """
    unusable = {"is_wrapper", "has_code"} | (set() if with_features else {"needs_features"})
    return {
        name: declaration.summary
        for name, declaration in PROPENSITY_MODELS.items()
        if not unusable & declaration.traits.keys()
    }
