"""The files that a page of the documentation prints, by name."""

import re
from pathlib import Path

from tests.support.places import ROOT

DOCS = ROOT / "docs"
FILE = re.compile(r"^`([\w./]+)`:\n\n```\w+\n(.*?)^```", re.MULTILINE | re.DOTALL)


def read_files(page: Path) -> dict[str, str]:
    return dict(FILE.findall(page.read_text(encoding="utf-8")))
