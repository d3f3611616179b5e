"""The page "Where do I change ...?": every place that it names is there."""

import ast
import re
import tomllib

import pytest

from tests.support.pages import DOCS
from tests.support.places import ROOT

PAGE = DOCS / "where_to_change.md"
ROW = re.compile(r"^\| (?!I want|---)(.+) \|$", re.MULTILINE)
PLACE = re.compile(r"`([\w./-]+\.\w+):([\w.-]+)`")
REQUESTS = (
    "an algorithm", "a backend", "a recurrent policy", "a claim of a new paper", "a figure on the page",
    "another Python", "a backend's rounding", "a board transport", "the judge's threshold",
    "Atari with sticky actions",
)  # fmt: skip


def read_requests():
    """By request, the places that answer it."""
    rows = [row.split(" | ") for row in ROW.findall(PAGE.read_text(encoding="utf-8").replace("| |", "|"))]
    return {row[0]: PLACE.findall(" | ".join(row[1:])) for row in rows}


def list_names(path):
    """What may stand behind the colon: names a module defines or uses, and keys of a table or of a list of settings."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        tree = ast.parse(text)
        defined = {node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef | ast.FunctionDef)}
        return defined | {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    if path.suffix == ".toml":
        data = tomllib.loads(text)
        return data.keys() | data.get("project", {}).keys()
    return set(re.findall(r"([\w-]+)(?: = |: )", text))


def test_ten_requests_are_answered_in_at_most_three_places_each():
    found = read_requests()
    assert tuple(found) == REQUESTS
    assert all(1 <= len(places) <= 3 for places in found.values())


@pytest.mark.parametrize("request_", REQUESTS)
def test_every_place_is_there(request_):
    for file, name in read_requests()[request_]:
        assert (ROOT / file).is_file(), file
        assert name in list_names(ROOT / file), f"{file} has no {name}"
