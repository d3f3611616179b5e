"""The C and the Verilog that artefacts are made of: templates/<name>.in, in which every `$value` is replaced."""

from functools import cache
from importlib.resources import files as resources
from string import Template
from typing import Any


def fill(name: str, /, **values: Any) -> str:
    """The template of a whole file or module with its values filled in; KeyError for one that is missing."""
    return _read(name).substitute(values)


def fill_part(name: str, /, **values: Any) -> str:
    """The same for a part of a file: without the newline at its end."""
    return fill(name, **values).removesuffix("\n")


@cache
def _read(name: str) -> Template:
    return Template((resources(__package__) / "templates" / f"{name}.in").read_text())
