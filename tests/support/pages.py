"""The files that a page of the documentation prints, by name, and the scripts that make pages."""

import importlib.util
import re
import sys
from pathlib import Path
from typing import Any

from tests.support.places import ROOT

DOCS = ROOT / "docs"
SCRIPTS = DOCS / "scripts"
FILE = re.compile(r"^`([\w./]+)`:\n\n```\w+\n(.*?)^```", re.MULTILINE | re.DOTALL)


def read_files(page: Path) -> dict[str, str]:
    return dict(FILE.findall(page.read_text(encoding="utf-8")))


def load_script(name: str) -> Any:
    """The module docs/scripts/<name>.py, which is in no package; as in the interpreter, its neighbours are found."""
    if str(SCRIPTS) not in sys.path:
        sys.path.append(str(SCRIPTS))
    spec = importlib.util.spec_from_file_location(name, SCRIPTS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)  # where dataclasses look for it
    spec.loader.exec_module(module)
    return module
