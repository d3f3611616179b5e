"""The files that a page of the documentation prints, by name, and the scripts that make pages."""

import importlib.util
import re
import sys
from pathlib import Path
from typing import Any

from tests.support.places import ROOT

DOCS = ROOT / "docs"
FILE = re.compile(r"^`([\w./]+)`:\n\n```\w+\n(.*?)^```", re.MULTILINE | re.DOTALL)


def read_files(page: Path) -> dict[str, str]:
    return dict(FILE.findall(page.read_text(encoding="utf-8")))


def load_script(name: str) -> Any:
    """The module of docs/<name>.py, which is no package; like the interpreter, finds its neighbours beside it."""
    if str(DOCS) not in sys.path:
        sys.path.append(str(DOCS))
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)  # where dataclasses look for it
    spec.loader.exec_module(module)
    return module
