"""Bytes of artefacts are what a target stores, times of C are its own."""

import re

import pytest

from quarl_bench.backends.c import backend
from quarl_bench.checking.costs import CODE, FILE, benchmark_artefacts
from quarl_bench.checking.subject import open_subject
from quarl_bench.errors import DeploymentError
from tests.support.places import POLICIES


@pytest.fixture
def subject():
    if not POLICIES.is_dir():
        pytest.skip(f"no policies in {POLICIES}")
    return open_subject(str(POLICIES / "ppo-cartpole-seed0"))


@pytest.mark.needs("cc")
def test_bytes_of_c_are_those_of_its_machine_code(subject):
    full, integer = benchmark_artefacts(subject, ["fp32", "int8"], ["c"])
    assert full.counted == integer.counted == CODE
    weights = sum(layer.weight.size for layer in subject.stored.policy.net.layers)
    assert 4 * weights < full.bytes < 10 * weights, "fp32's weights take four bytes each"
    assert weights < integer.bytes < full.bytes
    assert 0 < integer.own < 1e3 * integer.median, "a call from Python takes longer than the code in it"


def test_without_a_compiler_the_source_is_called_by_its_name(subject, monkeypatch):
    monkeypatch.setattr(backend, "find_compiler", lambda: _raise(DeploymentError("c: no C compiler")))
    (cost,) = benchmark_artefacts(subject, ["int8"], ["c"])
    assert (cost.bytes, cost.own, cost.counted) == (0, None, FILE)
    assert re.fullmatch(r"c: no C compiler; its source, which is no measure of the code, has [\d,]+ bytes", cost.reason)


def _raise(error):
    raise error
