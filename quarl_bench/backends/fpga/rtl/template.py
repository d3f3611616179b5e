"""The Verilog that designs are made of: templates/<name>.v.in, in which every `$value` is replaced."""

from functools import cache
from importlib.resources import files as resources
from string import Template
from typing import Any


def fill_module(name: str, /, **values: Any) -> str:
    """The module of templates/<name>.v.in with its values filled in; KeyError for one that is missing."""
    return _read(name).substitute(values)


def fill_part(name: str, /, **values: Any) -> str:
    """The same for a part of a module: without the newline at its end."""
    return fill_module(name, **values).removesuffix("\n")


@cache
def _read(name: str) -> Template:
    return Template((resources(__package__) / "templates" / f"{name}.v.in").read_text())
