"""docs/json.md says what commands and pytest write: every key, with its type."""

import contextlib
import io
import json
import re
from types import SimpleNamespace

import numpy as np
import pytest

from quarl_bench.cli import main
from quarl_bench.policies.storage.fp32 import save_policy
from quarl_bench.report.rows.checks import name_check
from quarl_bench.views.rows import SCHEMA_VERSION
from tests.support.inner import run_inside
from tests.support.pages import DOCS
from tests.support.rows import make_row
from tests.support.strategies import make_linear_policy

PAGE = (DOCS / "json.md").read_text(encoding="utf-8")
TYPES = {
    "text": str, "number": int | float, "list": list, "object": dict, "true or false": bool, "null": type(None),
}  # fmt: skip
BALANCER = make_linear_policy(np.outer([-1.0, 1.0], [0.02, 0.2, 1.0, 0.6]))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("QUARL_CACHE_DIR", str(tmp_path / "cache"))
    save_policy(BALANCER, tmp_path / "policy", {"environment": "CartPole-v1"})
    return tmp_path


def read_table(title):
    """Types by key, of the section that is called so; `absent` is one of them."""
    section = re.search(rf"^## [^\n]*{re.escape(title)}[^\n]*\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)[1]
    rows = re.findall(r"^\| `([^`]+)` \| ([^|]+) \|", section, re.MULTILINE)
    assert rows
    return {key: re.split(r" or (?!false)|, or ", told.strip()) for key, told in rows}


def flatten(value, table, prefix=""):
    """Keys with their values; `rows[].bits` where the table says something of a list's objects."""
    for key, inner in value.items():
        nested = f"{prefix}{key}[]."
        if any(name.startswith(nested) for name in table):
            for one in inner:
                yield from flatten(one, table, nested)
        else:
            yield f"{prefix}{key}", inner


def compare(value, title):
    """What is written is on the page, with its type; what is on the page is written, unless it may be absent."""
    table, seen = read_table(title), set()
    for key, inner in flatten(value, table):
        seen.add(key)
        assert key in table, f"{title}: the page lacks {key}"
        types = [TYPES[name] for name in table[key] if name != "absent"]
        fits = any(isinstance(inner, kind) for kind in types) and (bool in types or not isinstance(inner, bool))
        assert fits, f"{title}: {key} is {inner!r}, the page says {table[key]}"
    assert {key for key, told in table.items() if "absent" not in told} <= seen


def ask(*arguments):
    with contextlib.redirect_stdout(io.StringIO()) as shown:
        assert main([*arguments, "--json"]) in (0, 3)
    return json.loads(shown.getvalue())


def test_the_page_has_the_version():
    assert f"This page is schema version {SCHEMA_VERSION}." in PAGE


@pytest.mark.parametrize(
    "arguments",
    [
        ("check", "policy", "--episodes", "4"),
        ("evaluate", "policy", "--scheme", "int8", "--episodes", "4"),
        ("sweep", "policy", "--bits", "8", "--episodes", "4"),
        ("prove", "policy", "--episodes", "1", "--backends", "integer"),
        ("quantize", "policy", "--scheme", "int8", "--output", "integers"),
        ("deploy", "policy", "--backend", "dump", "--output", "artefact"),
    ],
    ids=lambda arguments: arguments[0],
)
def test_what_a_command_prints(arguments, folder):
    compare(ask(*arguments), f"`quarl {arguments[0]} --json`")


def test_the_id_of_a_file_is_the_pages():
    line = SimpleNamespace(scheme=SimpleNamespace(name="int8"), floor=None)
    subject = SimpleNamespace(environment=SimpleNamespace(slug="cartpole"))
    assert f"`{name_check('agent.zip', subject, line, 0.05)}` of `agent.zip`" in PAGE
    assert f"`{name_check('agent.zip', subject, line, 0.02)}`" in (DOCS / "check.md").read_text(encoding="utf-8")


def test_what_a_plan_prints(folder):
    (folder / "none").mkdir()
    rows = [make_row("w8", 1.0, "inconclusive", interval=[0.9, 1.1]), make_row("int8", 0.99, "supported")]
    (folder / "results.json").write_text(json.dumps({"schema_version": 2, "rows": rows}))
    names = ("ppo-cartpole-w8", "ppo-cartpole-int8", "ppo-cartpole-fp16")
    compare(ask("plan", *names, "--results", "results.json", "--baselines", "none"), "`quarl plan --json`")


def test_what_pytest_writes(folder, pytester, monkeypatch):
    monkeypatch.chdir(pytester.path)
    pytester.makepyfile(
        f"""
        def test_it(assert_quantizable):
            assert_quantizable({str(folder / "policy")!r}, scheme="fp16", margin=0.5, episodes=8)
    """
    )
    assert run_inside(pytester, "--quarl-json", "results.json").ret == 0
    results = json.loads((pytester.path / "results.json").read_text())
    compare(results, "pytest `--quarl-json`")
    (row,) = results["rows"]
    compare(row, "A row")
