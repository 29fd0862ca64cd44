"""Files that were damaged or made up: logs, models, checkpoints, states of monitors, results."""

from __future__ import annotations

import gzip
import io
import json
import warnings
import zipfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import unskew
from fuzz.calls import SlowCallError, Tally, _find_place, limit_time
from fuzz.objects import fit_model, make_evaluation
from fuzz.values import make_log
from unskew import MatrixFactorization
from unskew.errors import UnskewError
from unskew.evaluation import Monitor
from unskew.io.duckdb_files import open_relation
from unskew.io.files import read_table, write_table
from unskew.io.log_files import ColumnNames, extract_log
from unskew.io.sources import FileSource
from unskew.models import RECOMMENDERS
from unskew.propensity import PROPENSITY_MODELS, ClassifierPropensity
from unskew.report import render_file

TEXT_FORMATS = ("csv", "tsv", "jsonl")
FORMATS = (*TEXT_FORMATS, "parquet", "arrow")
TOKENS = (
    b",",
    b"\n",
    b"\r",
    b'"',
    b"\0",
    b"\xff",
    b"#",
    b"\t",
    b"1_0",
    b"nan",
    b"1e999",
    b"{",
    b"[",
)

SCRIPT = "<script>alert"
VALUES: tuple[Any, ...] = (
    *(None, True, 0, -1, 1.5, 1e308, 1e-320, 2**62, 10**30, float("nan")),
    *("", "x", f"{SCRIPT}(1)</script>", "\x1b[2J", [], [1], [[1]], {}, {"a": 1}),
)


def read_log(path: Path) -> Any:
    """The log of a file, read in memory."""
    return extract_log(read_table(str(path)), ColumnNames()).ratings


def read_rows_with_duckdb(path: Path) -> int:
    """The number of rows that DuckDB reads."""
    with open_relation(FileSource.from_name(str(path))) as file:
        return len(file.select(("rating",)).fetchall())


def load_and_use(path: Path) -> Any:
    """Load a model and use it: what it predicts must be finite."""
    log, model = make_log(), unskew.load(path)
    predicted = model.predict(log.users[log.user], log.items[log.item], on_unknown="fallback")
    model.recommend(log.users[:2], k=3, on_unknown="fallback")
    if not np.isfinite(predicted).all():
        raise FloatingPointError("a prediction is not finite")
    return None


def load_and_weight(path: Path) -> Any:
    """Load a propensity model and use it: what it predicts must be probabilities."""
    propensity = unskew.load(path).predict(make_log()).values
    if not ((propensity > 0) & (propensity <= 1)).all():
        raise FloatingPointError("a propensity is not above 0 and at most 1")
    return None


def resume(path: Path) -> Any:
    """Go on with the fit of a checkpoint."""
    model = MatrixFactorization(2, max_iter=6, tol=0.0)
    model.fit(make_log(), checkpoint=path, checkpoint_every=2)
    if not np.isfinite(model.objective_):
        raise FloatingPointError("the objective is not finite")
    return None


def watch_state(path: Path) -> Any:
    """Go on with a monitor, and make its page."""
    monitor = Monitor.load(path)
    rating = np.arange(1.0, 6.0)
    predictions = dict.fromkeys(monitor.plan.models, rating)
    if monitor.plan.unit == "row":
        monitor.update(rating, predictions, np.full(5, 0.5))
    watch = monitor.watch()
    json.loads(watch.to_json(), parse_constant=_refuse_constant)
    page = watch.to_html(path.with_suffix(".html"))
    _refuse_script(page.read_text(), repr(watch), watch._repr_html_())


def make_page(path: Path) -> Any:
    """The page of a result."""
    _refuse_script(render_file(path.read_bytes().decode(errors="replace"), path.name))


def _refuse_constant(name: str) -> None:
    raise FloatingPointError(f"{name} is no JSON")


def _refuse_script(*texts: str) -> None:
    if any(SCRIPT in text for text in texts) or any("\x1b" in text for text in texts):
        raise FloatingPointError("the text of a stranger became more than text")


@cache
def make_models(folder: Path) -> tuple[tuple[str, bytes], ...]:
    """How to use a fitted model of each declared class, and the content of its file."""
    models = []
    for registry, use in ((RECOMMENDERS, "unskew"), (PROPENSITY_MODELS, "propensity")):
        for kind in {declaration.target for declaration in registry.values()} - {
            ClassifierPropensity,  # cannot be saved
        }:
            fit_model(kind.__name__, kind).save(folder / "seed.model")
            models.append((use, kind.__name__, (folder / "seed.model").read_bytes()))
    return tuple((use, content) for use, _, content in sorted(models))


@cache
def make_seeds(folder: Path) -> dict[str, bytes]:
    """The content of a good file of each kind."""
    log = make_log()
    columns = {
        "user_id": log.users[log.user],
        "item_id": log.items[log.item],
        "rating": log.rating,
    }
    contents = {}
    for form in FORMATS:
        write_table(columns, str(folder / f"seed.{form}"))
        contents[form] = (folder / f"seed.{form}").read_bytes()
    contents["csv.gz"] = gzip.compress(contents["csv"])
    MatrixFactorization(2, max_iter=500).fit(log).save(folder / "seed.unskew")
    contents["unskew"] = (folder / "seed.unskew").read_bytes()
    MatrixFactorization(2, max_iter=4, tol=0.0).fit(
        log, checkpoint=folder / "seed.checkpoint", checkpoint_every=2
    )
    contents["checkpoint"] = (folder / "seed.checkpoint").read_bytes()
    monitor = Monitor(["a", "b"], planned_size=100, look_every=2)
    monitor.update(np.arange(1.0, 6.0), {"a": np.ones(5), "b": np.ones(5) * 2}, np.full(5, 0.5))
    monitor.save(folder / "seed.state")
    contents["state"] = (folder / "seed.state").read_bytes()
    contents["result"] = make_evaluation().to_json().encode()
    return contents


def damage(content: bytes, rng: np.random.Generator) -> bytes:
    """Cut, repeat, exchange or insert bytes."""
    start, end = sorted(rng.integers(0, len(content) + 1, 2).tolist())
    match rng.integers(5):
        case 0:
            return content[:start]
        case 1:
            return content[:start] + content[end:]
        case 2:
            return content[:end] + content[start:]
        case 3:
            changed = bytearray(content)
            for place in rng.integers(0, len(content), rng.integers(1, 9)):
                changed[place] = rng.integers(256)
            return bytes(changed)
        case _:
            return content[:start] + TOKENS[rng.integers(len(TOKENS))] + content[start:]


def edit_archive(content: bytes, rng: np.random.Generator) -> bytes:
    """Replace one array of a model or checkpoint by another, and sign it again."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    name = str(rng.choice([name for name in parts if name != "manifest.json"]))
    try:
        array = np.load(io.BytesIO(parts[name]), allow_pickle=False)
    except ValueError:
        return damage(content, rng)
    buffer = io.BytesIO()
    np.save(buffer, _edit_array(array, rng), allow_pickle=False)
    parts[name] = buffer.getvalue()
    if "manifest.json" in parts:
        import hashlib

        manifest = json.loads(parts["manifest.json"])
        manifest["sha256"][name] = hashlib.sha256(parts[name]).hexdigest()
        parts["manifest.json"] = json.dumps(manifest).encode()
    packed = io.BytesIO()
    method = zipfile.ZIP_STORED if rng.random() < 0.9 else zipfile.ZIP_DEFLATED
    with zipfile.ZipFile(packed, "w", method) as archive:
        for each, part in parts.items():
            archive.writestr(each, part)
    return packed.getvalue()


def edit_manifest(content: bytes, rng: np.random.Generator) -> bytes:
    """Replace one value in the manifest of a model."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    manifest = json.loads(parts["manifest.json"])
    places = list(_list_places(manifest["model"]))
    holder, key = places[rng.integers(len(places))]
    holder[key] = VALUES[rng.integers(len(VALUES))]
    parts["manifest.json"] = json.dumps(manifest).encode()
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, part in parts.items():
            archive.writestr(name, part)
    return packed.getvalue()


def edit_json(content: bytes, rng: np.random.Generator) -> bytes:
    """Replace or drop one value in JSON."""
    record = json.loads(content)
    places = list(_list_places(record))
    holder, key = places[rng.integers(len(places))]
    if rng.random() < 0.1:
        del holder[key]
    else:
        holder[key] = VALUES[rng.integers(len(VALUES))]
    return json.dumps(record).encode()


def _list_places(packed: Any) -> Iterator[tuple[Any, Any]]:
    """Each value inside nested JSON, as what holds it and its key."""
    entries = packed.items() if isinstance(packed, dict) else enumerate(packed)
    for key, value in entries:
        yield packed, key
        if isinstance(value, dict | list):
            yield from _list_places(value)


def _edit_array(array: Any, rng: np.random.Generator) -> Any:
    match rng.integers(7):
        case 0:
            return array[:1] if array.ndim else array
        case 1:
            return np.concatenate([array, array]) if array.ndim else array
        case 2:
            kind = "U4" if array.dtype.kind == "U" else rng.choice(["f4", "f8", "i4", "i8", "c16"])
            return array.astype(kind)
        case 3:
            return array.T
        case 4:
            return (
                np.full_like(array, rng.choice([0, -1, 1])) if array.dtype.kind in "fiu" else array
            )
        case 5 if array.dtype.kind == "f":
            return np.full_like(array, rng.choice([np.nan, np.inf, 1e308]))
        case _:
            return array[None]


def try_files(seed: int, n_files: int, folder: Path) -> Tally:
    """Read random damaged files of each kind."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        seeds, models = make_seeds(folder), make_models(folder)
    rng, tally = np.random.default_rng(seed), Tally()
    readers: dict[str, tuple[Callable[[Path], Any], ...]] = {
        **dict.fromkeys((*FORMATS, "csv.gz"), (read_log,)),
        **dict.fromkeys((*TEXT_FORMATS, "parquet"), (read_log, read_rows_with_duckdb)),
        "unskew": (load_and_use,),
        "propensity": (load_and_weight,),
        "checkpoint": (resume,),
        "state": (watch_state,),
        "result": (make_page,),
    }
    kinds = list(seeds)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for number in range(n_files):
            kind = kinds[rng.integers(len(kinds))]
            seed_content, edit = seeds[kind], damage
            if kind == "unskew":
                kind, seed_content = models[rng.integers(len(models))]
            if kind in ("state", "result"):
                edit = edit_json if rng.random() < 0.9 else damage
            elif kind not in FORMATS and kind != "csv.gz" and rng.random() < 0.7:
                is_model = kind != "checkpoint"
                edit = edit_manifest if is_model and rng.random() < 0.5 else edit_archive
            content = edit(seed_content, rng)
            for read in readers[kind]:
                path = folder / f"file-{number}.{kind}"
                path.write_bytes(content)
                _try_file(read, path, tally)
                path.unlink(missing_ok=True)
    return tally


def _try_file(read: Callable[[Path], Any], path: Path, tally: Tally) -> None:
    tally.tried += 1
    try:
        with limit_time():
            read(path)
    except UnskewError as error:
        tally.typed += 1
        tally.named += path.name in str(error)
    except SlowCallError:
        tally.slow[read.__name__] += 1
    except FloatingPointError:
        tally.silent[read.__name__] += 1
    except Exception as error:
        tally.raw[f"{_find_place(error)}: {type(error).__name__}: {read.__name__}"] += 1
    else:
        tally.finished += 1
