"""Every recommender and propensity model: time, steps, memory, and time relative to MF.

    python benchmarks/models.py                              # all models, 100K and 1M ratings
    python benchmarks/models.py --sizes 10M --only 'mf;wmf'  # some models, by name
    python benchmarks/models.py --against OTHER/src          # next to another version
    python benchmarks/models.py --rivals                     # implicit and LightFM, if installed

The models are those of the registries. The log is the long-tailed one of ``benchmarks/mf.py``,
with 20 factors and a fixed penalty; rows "default" have the default settings apart from the number
of factors. Each fit runs in a process of its own, after a fit of a tiny log that loads and compiles
the code. "processor" adds up the seconds of all threads, and the ratios compare it: other work on
the machine changes it less than wall time. With ``--against`` processes of both versions alternate.
"""

from __future__ import annotations

import argparse
import inspect
import json
import os
import subprocess
import sys
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from time import perf_counter, process_time
from typing import Any

import numpy as np
from mf import memory_mb, reset_peak, synthetic

N_FACTORS, L2 = 20, 5.0
MF = {"class": "MatrixFactorization", "settings": {"n_factors": N_FACTORS, "l2": L2}}
SHARED = {"n_factors": N_FACTORS, "l2": L2, "random_state": 0, "model": MF, "imputer": MF}
EXTRA: dict[str, dict[str, Any]] = {
    "logistic": {"relevance_threshold": 4},
    "offsets-only": {"n_factors": 0},
}
"""Settings of a recommender, by its name, besides ``SHARED``."""
CLICK_MODELS = ("wmf", "expomf", "relmf", "popularity")
"""They get a log of clicks: 1 in every cell of the log."""
VARIANTS: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "mf": [("absolute loss", {"loss": "absolute"}), ("default", {"l2": "auto"})],
    "doubly-robust": [("default", {"l2": "auto", "imputer": None})],
    "tri-training": [("default", {"model": None})],
    "logistic": [("default", {"l2": "auto", "relevance_threshold": 4})],
}
"""Further rows of a recommender, by its name."""
INNER = {"class": "PopularityPropensity", "settings": {"by": "both"}}
POISSON = {"class": "PoissonPropensity", "settings": {"n_factors": N_FACTORS}}
OFFSETS = {"user_offsets": True, "item_offsets": True}
PROPENSITY_VARIANTS: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "cross_fitted": [("Poisson", {"model": POISSON})],
    "logistic": [("offsets", OFFSETS), ("offsets, ridge 1", OFFSETS | {"ridge": 1.0})],
}
NAMES_OF_ONCE = {"relevance_threshold": "threshold", "ridge": "l2", "ridge_per_weight": "l2"}
"""Settings that an older version names in another way."""
TIME_LIMIT = 900


@dataclass(frozen=True)
class Fit:
    """One fit: what to fit, and to which log."""

    kind: str
    """``"recommender"``, ``"propensity"`` or ``"rival"``."""
    name: str
    python_name: str
    variant: str = ""
    settings: dict[str, Any] = field(default_factory=dict)
    traits: dict[str, Any] = field(default_factory=dict)

    @property
    def label(self) -> str:
        return f"{self.name}, {self.variant}" if self.variant else self.name


def list_fits() -> Iterator[Fit]:
    """All declared recommenders, presets and propensity models, with their variants."""
    from unskew.models import PRESETS, RECOMMENDERS
    from unskew.propensity import PROPENSITY_MODELS

    for registry in (RECOMMENDERS, PRESETS):
        for name, declared in registry.items():
            for variant, settings in [("", {}), *VARIANTS.get(name, [])]:
                more = SHARED | EXTRA.get(name, {}) | settings
                yield Fit("recommender", name, _name(declared), variant, more, _traits(declared))
    for name, declared in PROPENSITY_MODELS.items():
        for variant, settings in [("", {}), *PROPENSITY_VARIANTS.get(name, [])]:
            more = {
                "n_factors": N_FACTORS,
                "random_state": 0,
                "model": INNER,
                "min_propensity": 0.01,
            }
            more |= settings
            yield Fit("propensity", name, _name(declared), variant, more, _traits(declared))


def _name(declared: Any) -> str:
    target = declared.target
    return str(getattr(target, "__name__", None) or target.name)


def _traits(declared: Any) -> dict[str, Any]:
    return {name: value for name, value in declared.traits.items() if isinstance(value, bool)}


def find_class(name: str) -> Any:
    """A class or preset of whichever version is imported."""
    import unskew

    for place in ("unskew", "unskew.models", "unskew.propensity"):
        found = getattr(sys.modules.get(place) or __import__(place, fromlist=["_"]), name, None)
        if found is not None:
            return found
    raise LookupError(f"{unskew.__file__} has no {name}")


def build(python_name: str, settings: dict[str, Any], extra: dict[str, Any]) -> Any:
    """The model, with those settings that it has."""
    target = find_class(python_name)
    valid = inspect.signature(target).parameters
    chosen = {}
    for setting, value in (settings | extra).items():
        named = setting if setting in valid else NAMES_OF_ONCE.get(setting, "")
        if named in valid:
            is_model = isinstance(value, dict) and "class" in value
            inner = build(value["class"], value["settings"], {}) if is_model else value
            chosen[named] = inner
    return target(**chosen)


@dataclass(frozen=True)
class World:
    """A log with propensities, covariates and a random sample of ratings."""

    log: Any
    weight: np.ndarray
    clicks: Any
    features: tuple[np.ndarray, np.ndarray]
    sample: np.ndarray


def make_world(size: str) -> World:
    import unskew

    if size == "tiny":
        rng = np.random.default_rng(0)
        seen = rng.random((60, 50)) < 0.3
        user, item = (codes.astype(np.int32) for codes in np.nonzero(seen))
        rating, shape = rng.integers(1, 6, user.size).astype(float), seen.shape
        weight = np.full(user.size, 4.0)
    else:
        drawn = synthetic(size)[0]
        shape = drawn.n_users, drawn.n_items
        user, item, weight = drawn.user, drawn.item, drawn.weight
        rating = np.round(drawn.rating - drawn.rating.min()) + 1
    rng = np.random.default_rng(1)
    log = unskew.Ratings.from_codes(user, item, rating, shape=shape)
    clicks = unskew.Ratings.from_codes(user, item, np.ones(user.size), shape=shape)
    features = tuple(rng.integers(0, 3, (n, 2)).astype(float) for n in shape)
    sample = np.clip(np.round(2.5 + rng.normal(size=2_000)), 1, 5)
    return World(log, np.maximum(weight, 1.0), clicks, features, sample)  # type: ignore[arg-type]


def prepare(fit: Fit, world: World) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """The model and the arguments of its method ``fit``."""
    if fit.kind == "recommender":
        log = world.clicks if fit.name in CLICK_MODELS else world.log
        model = build(fit.python_name, fit.settings, {})
        if not fit.traits.get("reads_propensities", True) or fit.name in CLICK_MODELS:
            return model, (log,), {}
        propensities = 1 / world.weight
        if fit.traits.get("needs_all_propensities"):
            matrix = np.full((log.n_users, log.n_items), propensities.mean())
            matrix[log.user, log.item] = propensities
            propensities = matrix
        return model, (log, propensities), {}
    extra: dict[str, Any] = {}
    if fit.traits.get("takes_features") or fit.traits.get("needs_features"):
        extra |= {"user_features": world.features[0], "item_features": world.features[1]}
    if fit.name == "classifier":
        from sklearn.linear_model import LogisticRegression

        extra["estimator"] = LogisticRegression()
    model = build(fit.python_name, fit.settings, extra)
    arguments = {"mcar": world.sample} if fit.traits.get("needs_mcar") else {}
    return model, (world.log.with_universe((world.log.n_users, world.log.n_items)),), arguments


def measure(fit: Fit, size: str) -> dict[str, Any]:
    """Seconds, steps and memory of one fit in this process."""
    warnings.simplefilter("ignore")
    tiny, arguments, keywords = prepare(fit, make_world("tiny"))
    tiny.fit(*arguments, **keywords)
    model, arguments, keywords = prepare(fit, make_world(size))
    before = reset_peak()
    wall, processor = perf_counter(), process_time()
    model.fit(*arguments, **keywords)
    wall, processor = perf_counter() - wall, process_time() - processor
    return {
        "wall": wall,
        "processor": processor,
        "steps": getattr(model, "n_iter_", None),
        "converged": getattr(model, "converged_", None),
        "added_mb": memory_mb("VmHWM") - before,
        "objective": _objective(model),
    }


def _objective(model: Any) -> float | None:
    history = getattr(model, "history_", None)
    return float(history[-1]) if history is not None and len(history) else None


def measure_rival(name: str, size: str) -> dict[str, Any]:
    """implicit (alternating least squares, 15 sweeps) and LightFM (WARP, 10 epochs) on clicks."""
    from scipy.sparse import csr_array, csr_matrix

    drawn = synthetic(size)[0]
    ones = np.ones(drawn.user.size, np.float32)
    shape = drawn.n_users, drawn.n_items
    if name == "implicit":
        from implicit.als import AlternatingLeastSquares

        model: Any = AlternatingLeastSquares(
            N_FACTORS, regularization=1.0, alpha=40.0, iterations=15, random_state=0
        )
        arguments: dict[str, Any] = {"show_progress": False}
        matrix: Any = csr_matrix((ones, (drawn.user, drawn.item)), shape=shape)
    else:
        from lightfm import LightFM

        model = LightFM(no_components=N_FACTORS, loss="warp", random_state=0)
        arguments = {"epochs": 10, "num_threads": len(os.sched_getaffinity(0))}
        matrix = csr_array((ones, (drawn.user, drawn.item)), shape=shape).tocoo()
    before = reset_peak()
    wall, processor = perf_counter(), process_time()
    model.fit(matrix, **arguments)
    wall, processor = perf_counter() - wall, process_time() - processor
    steps = 15 if name == "implicit" else 10
    added = memory_mb("VmHWM") - before
    return {"wall": wall, "processor": processor, "steps": steps, "added_mb": added}


def run(fit: Fit, size: str, source: str | None, python: str = sys.executable) -> dict[str, Any]:
    """Measure in a process of its own; a failure is a row as well."""
    command = [python, __file__, "--child", json.dumps([asdict(fit), size])]
    environment = dict(os.environ)
    if source:
        environment["PYTHONPATH"] = source
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=TIME_LIMIT
        )
    except subprocess.TimeoutExpired:
        return {"error": f"over {TIME_LIMIT} s"}
    if done.returncode:
        return {"error": (done.stderr.strip().splitlines() or ["killed"])[-1][:100]}
    measured: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return measured


def show(fit: Fit, size: str, row: dict[str, Any], before: dict[str, Any] | None, mf: float) -> str:
    """A line of the table."""
    cells = [size, fit.kind, fit.label]
    if before is not None:
        cells.append(f"{before['processor']:.1f}" if "processor" in before else "-")
    if "error" in row:
        return "| " + " | ".join([*cells, row["error"]]) + " |"
    ended = {True: "yes", False: "no", None: ""}[row.get("converged")]
    cells += [
        f"{row['processor']:.1f}",
        f"{row['wall']:.1f}",
        f"{row['processor'] / mf:.1f}" if mf else "",
        str(row["steps"] or ""),
        ended,
        f"{row['added_mb']:.0f}",
    ]
    if before is not None:
        same = row.get("objective") is not None and before.get("objective") is not None
        share = (row["objective"] / before["objective"] - 1) if same else None
        cells.append("" if share is None else f"{share:+.1e}")
    return "| " + " | ".join(cells) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", nargs="+", default=["100K", "1M"])
    parser.add_argument("--only", default="", help="names or rows of models, with semicolons")
    parser.add_argument("--skip", default="", help="names or rows of models to leave out")
    parser.add_argument("--kind", default="", help="recommender or propensity")
    parser.add_argument("--against", help="the folder src of another version")
    parser.add_argument("--rivals", action="store_true", help="also implicit and LightFM")
    parser.add_argument("--rival-python", default=sys.executable, help="their Python")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        settings, size = json.loads(options.child)
        fit = Fit(**settings)
        child = measure_rival(fit.name, size) if fit.kind == "rival" else measure(fit, size)
        print(json.dumps(child))
        return
    only = [name for name in options.only.split(";") if name]
    fits = [fit for fit in list_fits() if not only or fit.name in only or fit.label in only]
    skipped = options.skip.split(";")
    fits = [fit for fit in fits if not {fit.name, fit.label} & set(skipped)]
    fits = [fit for fit in fits if options.kind in ("", fit.kind)]
    compared = ["before, s"] if options.against else []
    columns = ["ratings", "kind", "model", *compared, "processor, s", "wall, s", "ratio to MF"]
    columns += ["steps", "converged", "added MB"] + (["objective"] if compared else [])
    print("| " + " | ".join(columns) + " |\n" + "|---" * len(columns) + "|", flush=True)
    mf = Fit("recommender", "mf", "MatrixFactorization", "", SHARED)
    for size in options.sizes:
        base = run(mf, size, None)["processor"]
        print(f"| {size} | | MF, for the ratios |{' |' * len(compared)} {base:.1f} |", flush=True)
        for fit in fits:
            before = run(fit, size, options.against) if options.against else None
            print(show(fit, size, run(fit, size, None), before, base), flush=True)
        for name in ("implicit", "lightfm") if options.rivals else ():
            if options.rival_python == sys.executable and find_spec(name) is None:
                continue
            fit = Fit("rival", name, name)
            row = run(fit, size, None, options.rival_python)
            print(show(fit, size, row, {} if compared else None, base), flush=True)


if __name__ == "__main__":
    main()
