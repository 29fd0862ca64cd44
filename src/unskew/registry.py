"""One declaration for each metric, estimator, model, data set, command, ..., next to its code.

Every package that holds such a kind has one :class:`Registry`. A declaration has a name, aliases,
a label for reports and a one-line summary. Names on the command line, labels, documentation
tables, exports and conformance tests are all derived from the declarations.

Other packages add to them through entry points, which are loaded when they are first needed:

Group               What an entry point names
------------------  -------------------------------------------------------------------------
``unskew.plugins``  a module; importing it declares metrics, estimators, models, commands, ...
``unskew.engines``  a class that runs a fit or a ranking somewhere else, by the engine's name
``unskew.report``   the functions that show results: ``draw``, ``write_headline``, ``write_page``

The lower packages look upwards through these groups only, never through module names.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from os import PathLike
from pkgutil import iter_modules
from threading import RLock
from typing import Any, Generic, TypeVar

from unskew.errors import (
    MissingExtraError,
    UnknownNameError,
    UnskewError,
    UnskewWarning,
    UsageError,
)

T = TypeVar("T")
LOCAL_ENGINES = ("auto", "local")
"""Names of the engine that computes in this process."""


@dataclass(frozen=True, slots=True)
class Declaration(Generic[T]):
    """What is declared, and everything that other parts derive from it."""

    name: str
    """What users type, such as ``snips``."""
    target: T
    """The class, function or object itself."""
    label: str
    """What reports print, such as ``SNIPS``."""
    summary: str
    """One line for help texts and documentation tables."""
    aliases: tuple[str, ...] = ()
    traits: Mapping[str, Any] = field(default_factory=dict)
    """Capabilities and other facts that only this kind has."""


class Registry(Mapping[str, Declaration[T]]):
    """The declarations of one kind, by name.

    The registry finds its declarations by importing the modules of its own package and the
    plugins of other packages. Both happen once, when a name is not known yet or when all names
    are listed.

    >>> colors = Registry[str]("color", "unskew.types")
    >>> colors.add("red", "#f00", label="Red", summary="The color of ripe tomatoes.")
    '#f00'
    >>> colors.find("red").label
    'Red'
    """

    def __init__(self, kind: str, package: str) -> None:
        self.kind = kind
        self.package = package
        self._declarations: dict[str, Declaration[T]] = {}
        self._by_alias: dict[str, str] = {}
        self._is_complete = self._is_importing = False

    def add(
        self,
        name: str,
        target: T,
        *,
        label: str,
        summary: str,
        aliases: tuple[str, ...] = (),
        traits: Mapping[str, Any] | None = None,
    ) -> T:
        """Declare ``target`` under ``name``; returns ``target``."""
        for each in (name, *aliases):
            earlier = self._declarations.get(self._by_alias.get(each, each))
            if earlier is not None and not _is_redefinition(earlier.target, target):
                raise UsageError(f"the {self.kind} name {each!r} is declared twice.")
        declaration = Declaration(name, target, label, summary, aliases, dict(traits or {}))
        self._declarations[name] = declaration
        self._by_alias.update(dict.fromkeys(aliases, name))
        return target

    def declare(
        self,
        name: str,
        *,
        label: str,
        summary: str,
        aliases: tuple[str, ...] = (),
        traits: Mapping[str, Any] | None = None,
    ) -> Callable[[T], T]:
        """Decorator that declares the class or function below it."""

        def declare_target(target: T) -> T:
            return self.add(
                name, target, label=label, summary=summary, aliases=aliases, traits=traits
            )

        return declare_target

    def find(self, name: str) -> Declaration[T]:
        """The declaration with this name or alias."""
        if not isinstance(name, str):
            raise self._unknown_name_error(name)
        if name not in self._declarations and name not in self._by_alias:
            self._complete()
        if name in self._by_alias:
            return self._declarations[self._by_alias[name]]
        if name not in self._declarations:
            raise self._unknown_name_error(name)
        return self._declarations[name]

    def _unknown_name_error(self, name: object) -> UnknownNameError:
        parameter = self.kind if self.kind.isidentifier() else None
        return UnknownNameError(self.kind, name, self, parameter=parameter)

    def to_markdown(self) -> str:
        """A table for the documentation: every name, its label and what it means."""
        rows = [f"| `{each.name}` | {each.label} | {each.summary} |" for each in self.values()]
        return "\n".join(["| name | label | meaning |", "|---|---|---|", *rows])

    def __getitem__(self, name: str) -> Declaration[T]:
        try:
            return self.find(name)
        except UnknownNameError as error:
            raise KeyError(name) from error

    def __iter__(self) -> Iterator[str]:
        """Names by the trait ``order`` if declared, then alphabetically."""
        self._complete()
        declarations = self._declarations.values()
        ordered = sorted(declarations, key=lambda each: (each.traits.get("order", 1000), each.name))
        return iter([declaration.name for declaration in ordered])

    def __len__(self) -> int:
        self._complete()
        return len(self._declarations)

    def _complete(self) -> None:
        """Import everything that may declare; other threads wait until that is done."""
        if self._is_complete:
            return
        with _COMPLETING:
            if self._is_importing or self._is_complete:
                return
            self._is_importing = True
            package = import_module(self.package)
            for module in iter_modules(getattr(package, "__path__", ())):
                if not module.name.startswith("_"):
                    import_module(f"{self.package}.{module.name}")
            load_plugins()
            self._is_importing, self._is_complete = False, True


_COMPLETING = RLock()
"""Held while a registry imports its modules, which may look up names of any registry."""


def _is_redefinition(earlier: object, target: object) -> bool:
    """Whether a module was executed again, as ``importlib.reload`` and doctests do."""
    names = [
        (getattr(each, "__module__", None), getattr(each, "__qualname__", None))
        for each in (earlier, target)
    ]
    return names[0] == names[1] and names[0][1] is not None


def exported_names(
    registries: Registry[Any] | tuple[Registry[Any], ...],
    modules: Mapping[str, str] | None = None,
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """``__getattr__`` and ``__dir__`` of a package whose names are those that are declared in it.

    ``modules`` adds names that are not declared: each with the module of the package that has it.
    Nothing is imported before a name is asked for.
    """
    all_registries = registries if isinstance(registries, tuple) else (registries,)
    package, others = all_registries[0].package, dict(modules or {})

    def find_declared() -> dict[str, Any]:
        return {
            getattr(declaration.target, "__name__", declaration.name): declaration.target
            for registry in all_registries
            for declaration in registry.values()
        }

    def get_attribute(name: str) -> Any:
        if name in others:
            return getattr(import_module(f"{package}.{others[name]}"), name)
        if name == "__all__":
            return list_names()
        if not name.startswith("_") and name in (declared := find_declared()):
            return declared[name]
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    def list_names() -> list[str]:
        return sorted({*others, *find_declared()})

    return get_attribute, list_names


# Entry points


@cache
def load_plugins() -> None:
    """Import every module that another package lists under ``unskew.plugins``, once."""
    for point in entry_points(group="unskew.plugins"):
        try:
            point.load()
        except Exception as error:
            warnings.warn(
                UnskewWarning(
                    f"the plugin {point.name!r} ({point.value}) could not be loaded: {error!r}.",
                    remedy="Update or uninstall the package that provides it.",
                ),
                stacklevel=2,
            )


def load_report_function(name: str) -> Any:
    """The function of that name in the group ``unskew.report``."""
    return _find_entry_point("unskew.report", name).load()


def engine_names() -> tuple[str, ...]:
    """The names that the argument ``engine`` accepts."""
    return (*LOCAL_ENGINES, *sorted({point.name for point in entry_points(group="unskew.engines")}))


def find_engine(engine: str | object) -> Any:
    """The engine with that name and default settings; an engine object as it is; None if local."""
    if not isinstance(engine, str):
        return engine
    if engine in LOCAL_ENGINES:
        return None
    if engine not in engine_names():
        raise UnknownNameError("engine", engine, engine_names(), parameter="engine")
    return _find_entry_point("unskew.engines", engine).load()()


def engine_for(log: object) -> str:
    """The engine that ``engine="auto"`` means for a log.

    A data frame of Spark stays there, and the path of Parquet files is read by ``disk``, for which
    it may be larger than memory. Everything else is fitted in this process.
    """
    if type(log).__module__.startswith("pyspark."):
        return "spark"
    return "disk" if isinstance(log, str | PathLike) else "local"


def _find_entry_point(group: str, name: str) -> EntryPoint:
    points = list(entry_points(group=group, name=name))
    if not points:
        raise UnskewError(
            f"no installed package provides {name!r} in the entry point group {group!r}.",
            remedy="Install unskew with pip; its source alone has no entry points.",
        )
    return points[0]


def require_package(package: str, *, extra: str, purpose: str) -> None:
    """Raise an error that names the extra to install if ``package`` is missing."""
    if find_spec(package) is None:
        raise MissingExtraError(package, extra=extra, purpose=purpose)
