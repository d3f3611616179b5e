"""Hypothesis without a clock or a database, so that every machine runs the same examples; fixtures of several files."""

import gc
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.support.forks import join_server, share_server
from tests.support.headers import compile_headers
from tests.support.places import POLICIES
from tests.support.sizes import EXHAUSTIVE, draw_examples

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch: small nets on many threads mostly wait

gc.set_threshold(50_000, 20, 20)  # a run imports a million objects, and each collection visits them again

if shutil.which("ccache"):  # most of a build of Verilator's is its own library, the same for every design
    os.environ.setdefault("OBJCACHE", "ccache")
# It knows compiled headers by their content, and those of tests/support/headers.py do not depend on a design's macros.
os.environ.setdefault("CCACHE_SLOPPINESS", "pch_defines,time_macros")
# Verilator's makefiles optimize last and most; a design of the tests runs for milliseconds.
os.environ.setdefault("MAKEFLAGS", "OPT_FAST=-O0 OPT_GLOBAL=-O0")


settings.register_profile(
    "quarl",
    draw_examples(100),
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("quarl")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """A process more than cores: tests of boards, terminals and killed processes wait more than they compute."""
    return (os.cpu_count() or 1) + 1


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Of several workers: what the processes of their tests are forked from imports torch once."""
    if len(node.nodemanager.specs) > 1:
        node.workerinput["forkserver"] = share_server()


def pytest_configure(config: pytest.Config) -> None:
    """In a worker."""
    if address := getattr(config, "workerinput", {}).get("forkserver"):
        join_server(address)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Types first: they take longest, and a process that began with them at the end would end last."""
    items.sort(key=lambda item: item.path.name != "test_types.py")
    for item in items:
        if any("verilator" in marker.args for marker in item.iter_markers("needs")):
            item.fixturenames = [*item.fixturenames, "verilated_headers"]  # cases of one function share a list


def pytest_collection_finish() -> None:
    """What was imported stays: neither the collections of the run nor those at its end look at it again."""
    gc.freeze()


@pytest.fixture(scope="session")
def verilated_headers(tmp_path_factory: pytest.TempPathFactory) -> None:
    """For tests that build designs."""
    base = tmp_path_factory.getbasetemp()
    base = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    # Those of one run lie beside those of another, and a folder that was asked for is used alone.
    compile_headers(base.parent if base.parent.name.startswith("pytest-of-") else base)


@pytest.fixture(scope="session")
def designs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where compiled designs are kept: one folder for all processes of xdist, as builds are locked."""
    base = tmp_path_factory.getbasetemp()
    return (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "designs"


@pytest.fixture(scope="session")
def visit(designs: Path) -> Any:
    """The states that a committed policy visits, as tests/support/visits.py says; beside the designs."""
    from tests.support.visits import keep_visits

    return keep_visits(designs.with_name("visits"))


@pytest.fixture
def baseline() -> Callable[[str], Any]:
    """Loads a committed policy by name; the test is skipped where it is not there."""
    from quarl_bench.policies.storage.fp32 import load_policy

    def load(name: str) -> Any:
        if not (POLICIES / name).is_dir():
            pytest.skip(f"no baseline {name} in {POLICIES}")
        return load_policy(POLICIES / name)

    return load


@pytest.fixture
def plain_c(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """C that is compiled plainly, which takes half of the time: for tests of what stands around the kernels."""
    from quarl_bench.backends.c import backend
    from quarl_bench.system import compiler

    if EXHAUSTIVE:
        yield
        return
    monkeypatch.setattr(compiler, "OPTIMIZE", ("-O0",))
    backend._compile_once.cache_clear()  # nobody else gets these libraries, nor has this test those of others
    yield
    backend._compile_once.cache_clear()


@pytest.fixture
def brief_costs(plain_c: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Costs of few calls and of code compiled plainly, here and for another processor: where no number is looked at."""
    from quarl_bench.checking import costs

    if not EXHAUSTIVE:
        monkeypatch.setattr(costs, "CALLS", 50)
        monkeypatch.setattr(costs, "SECONDS", 1e-3)
        monkeypatch.setenv("CFLAGS", "-O1")
