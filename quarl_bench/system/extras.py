"""Optional dependencies: one line to the user where an extra is not installed, or what is installed is too old for it.

Which versions an extra asks for is read from this package's own metadata, so pyproject.toml is the one place.
"""

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from quarl_bench.errors import MissingExtra

if TYPE_CHECKING:
    from packaging.requirements import Requirement

PACKAGE = "quarl_bench"


def require(module: str, extra: str, what: str) -> Any:
    """The module that `extra` brings; MissingExtra, which says that `what` needs it, where it is absent or too old."""
    with needing(extra, what):
        return importlib.import_module(module)


@contextmanager
def needing(extra: str, what: str) -> Iterator[None]:
    """Around imports of what `extra` brings: MissingExtra where it is absent or too old."""
    check_versions(extra, what)
    try:
        yield
    except ImportError as error:
        if (error.name or "").partition(".")[0] == PACKAGE:
            raise  # our own mistake
        raise describe_absence(extra, what) from error


def expect(extra: str, what: str, *modules: str) -> None:
    """`needing`, asked before work that takes long: the modules have to be there, and none is imported."""
    with needing(extra, what):
        for module in modules:
            if find_spec(module) is None:
                raise ModuleNotFoundError(name=module)


def check_versions(extra: str, what: str) -> None:
    """MissingExtra for a library that is installed in a version that `extra` does not take.

    What is not installed is left to the import: another distribution may bring the module.
    """
    for requirement in list_requirements(extra):
        found = read_version(requirement.name)
        if found is not None and not requirement.specifier.contains(found, prereleases=True):
            raise MissingExtra(extra, what, f"{requirement.name} {requirement.specifier}, not {found}")


def require_version(distribution: str, extra: str, what: str) -> str:
    """Of an installed library; MissingExtra where it is absent or too old."""
    check_versions(extra, what)
    found = read_version(distribution)
    if found is None:
        raise describe_absence(extra, what)
    return found


def describe_absence(extra: str, what: str) -> MissingExtra:
    """To install the extra; or, where it brings less on this Python than on an older one, which Python has it all."""
    here = list_requirements(extra)
    for minor in reversed(range(sys.version_info.minor)):
        older = f"3.{minor}"
        lacks = [one.name for one in list_requirements(extra, older) if one not in here and not one.extras]
        if lacks:
            return MissingExtra(extra, what, f"Python {older} or older", f"newer ones have no {', '.join(lacks)}")
    return MissingExtra(extra, what)


@cache
def list_requirements(extra: str, python: str | None = None) -> "tuple[Requirement, ...]":
    """What `extra` asks for on this machine, or on it with another `python`, as 3.11.

    Nothing where this package is not installed but merely on the path.
    """
    import importlib.metadata

    from packaging.requirements import Requirement

    try:
        listed = [Requirement(line) for line in importlib.metadata.requires(PACKAGE) or ()]
    except importlib.metadata.PackageNotFoundError:
        return ()
    assumed = {"extra": extra} | ({"python_version": python} if python else {})
    own = [one for one in listed if one.marker and one.marker.evaluate(assumed)]
    found: list[Requirement] = []
    for one in own:
        if one.name.replace("-", "_") == PACKAGE:
            found += [each for other in sorted(one.extras) for each in list_requirements(other, python)]
        else:
            found.append(one)
    return tuple(found)


def read_version(distribution: str) -> str | None:
    """Of an installed library; None where it is not."""
    import importlib.metadata

    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None
