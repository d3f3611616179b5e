"""What can be added from outside: a registry holds one kind of thing by name, ours and that of other distributions.

Ours are named as `module:attribute` and imported when they are asked for. Others' are entry points of the registry's
group, and no metadata is read before a name is looked for or the names are listed. Standard library only.
"""

import importlib
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from quarl_bench.errors import QuarlError, SpecError, first_line

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

OURS = "quarl_bench"
Value = TypeVar("Value")


class EntryPointWarning(UserWarning):
    """An entry point of another distribution that does not load; everything else works without it."""


@dataclass(eq=False)
class Registry(Generic[Value]):
    """The values of one kind by name: `own` ones, and the entry points of `group`.

    A value has the attribute `name`, which is that of its entry, and may have `aliases`.
    """

    kind: str  # as messages call it
    group: str
    of: type[Value]
    own: Mapping[str, str]
    error: type[QuarlError] = SpecError
    loaded: dict[str, Value] = field(default_factory=dict)
    _broken: dict[str, str] = field(default_factory=dict)

    def find(self, name: str) -> Value:
        """The value of this name or alias; `error` with the known ones when there is none, or when it does not load."""
        if name in self.loaded:
            return self.loaded[name]
        if name not in self.names:
            return self._find_alias(name)
        if name not in self.own and (reason := self._load(self._others[name])):
            raise self.error(reason)
        if name in self.own:
            self.loaded[name] = load(self.own[name])
        return self.loaded[name]

    @property
    def names(self) -> tuple[str, ...]:
        """Every name, ours first; `error` where two distributions give the same."""
        return (*self.own, *self._others)

    def __contains__(self, name: object) -> bool:
        return name in self.own or name in self._others

    def __iter__(self) -> Iterator[str]:
        """Every name."""
        return iter(self.names)

    def values(self) -> Iterator[Value]:
        """Every value that loads; of any other an EntryPointWarning says once why."""
        for name in self.names:
            if name in self.own or not self._warn(name):
                yield self.find(name)

    def explain_unknown(self, name: str) -> str:
        """A line on a name that is not there."""
        import difflib  # a misspelling is rare

        aliases = [alias for value in self.loaded.values() for alias in getattr(value, "aliases", ())]
        near = difflib.get_close_matches(name, [*self.names, *aliases], 1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        return f"unknown {self.kind} {name!r}; {hint}known are {', '.join(self.names)}"

    @cached_property
    def _others(self) -> "dict[str, EntryPoint]":
        from importlib.metadata import entry_points

        found: dict[str, EntryPoint] = {}
        for point in entry_points(group=self.group):
            if point.name in self.own or point.name in found:
                first = _name_source(found[point.name]) if point.name in found else OURS
                raise self.error(
                    f"{self.kind} {point.name!r} is given twice, by {first} and by {_name_source(point)}; "
                    "uninstall one of them, or rename it"
                )
            found[point.name] = point
        return found

    def _find_alias(self, name: str) -> Value:
        for value in self.values():
            if name in getattr(value, "aliases", ()):
                return value
        raise self.error(self.explain_unknown(name))

    def _warn(self, name: str) -> bool:
        """Whether an entry point does not load, which is told the first time."""
        new = name not in self._broken
        reason = self._load(self._others[name])
        if reason and new:
            warnings.warn(reason, EntryPointWarning, stacklevel=3)
        return bool(reason)

    def _load(self, point: "EntryPoint") -> str:
        """Why an entry point does not load; empty where it does."""
        name = point.name
        if name in self.loaded or name in self._broken:
            return self._broken.get(name, "")
        try:
            value = point.load()
            if not isinstance(value, self.of) or getattr(value, "name", None) != name:
                raise TypeError(f"{point.value} is no {self.of.__name__} called {name!r}")  # noqa: TRY301
        except Exception as error:  # noqa: BLE001  (whatever the module of others raises)
            reason = f"{type(error).__name__}: {first_line(error)}"
            self._broken[name] = (
                f"{self.kind} {name!r} of {_name_source(point)} does not load ({reason}); mend or uninstall it"
            )
            return self._broken[name]
        self.loaded[name] = value
        return ""


def load(name: str) -> Any:
    """What `module:attribute` names."""
    module, _, attribute = name.partition(":")
    return getattr(importlib.import_module(module), attribute)


def _name_source(point: "EntryPoint") -> str:
    return "an unnamed distribution" if point.dist is None else f"{point.dist.name} {point.dist.version}"
