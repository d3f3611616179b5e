"""A griffe extension for the site: signatures show the values of constants that are defaults, and not their names.

mkdocs.yml names it. It reads the source, as griffe does; nothing of the package is imported.
"""

from typing import Any

import griffe


class ShowValues(griffe.Extension):
    """`margin: float = MARGIN` becomes `margin: float = 0.05`."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """When all modules are read, so that a constant is found where it is defined."""
        self._visit(pkg)

    def _visit(self, owner: griffe.Module | griffe.Class) -> None:
        for member in owner.members.values():
            if member.is_alias:
                continue
            if isinstance(member, griffe.Function):
                for parameter in member.parameters:
                    parameter.default = _find_value(member, parameter.default)
            elif isinstance(member, griffe.Module | griffe.Class):
                self._visit(member)


def _find_value(function: griffe.Function, default: Any) -> Any:
    """What a constant's name stands for; everything else as it is."""
    if not isinstance(default, griffe.ExprName):
        return default
    try:
        found = function.module[default.name]
        found = found.final_target if found.is_alias else found
    except (KeyError, griffe.AliasResolutionError):  # a builtin, or another package's
        return default
    return found.value if isinstance(found, griffe.Attribute) and isinstance(found.value, str) else default
