"""Bytes of artefacts are what a target stores, times of C are its own."""

import re
import shutil

import pytest

from quarl_bench.backends.c import backend
from quarl_bench.checking.costs import CODE, FILE, open_builder, time_artefacts
from quarl_bench.checking.targets import estimate_targets
from tests.support.artefacts import price_artefacts


@pytest.mark.needs("cc")
def test_bytes_of_c_are_those_of_its_machine_code(subject):
    full, integer = price_artefacts(subject, ["fp32", "int8"], ["c"])
    assert full.counted == integer.counted == CODE
    weights = sum(layer.weight.size for layer in subject.stored.policy.net.layers)
    assert 4 * weights < full.bytes < 10 * weights, "fp32's weights take four bytes each"
    assert weights < integer.bytes < full.bytes
    assert 0 < integer.own < 1e3 * integer.median, "a call from Python takes longer than the code in it"


def test_without_a_compiler_the_source_is_called_by_its_name(subject, monkeypatch):
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CC", raising=False)
    (cost,) = price_artefacts(subject, ["int8"], ["c"])
    assert (cost.bytes, cost.own, cost.counted) == (0, None, FILE)
    assert re.fullmatch(
        r"c: no C compiler \(cc, gcc\); install one, or name it in CC; its source, which is no measure of the code, "
        r"has [\d,]+ bytes",
        cost.reason,
    )


@pytest.fixture
def calls(tmp_path, monkeypatch):
    """What the compiler is asked to write, and when harnesses run: a line each, by what stands before them."""
    log, compiler = tmp_path / "calls", tmp_path / "bin" / "cc"
    compiler.parent.mkdir()
    real = shutil.which(backend.find_compiler())
    compiler.write_text(
        f'#!/bin/sh\necho "begin $*" >> {log}\n{real} "$@"\nsaid=$?\necho "end $*" >> {log}\nexit $said\n'
    )
    compiler.chmod(0o755)
    monkeypatch.setenv("CC", str(compiler))
    time_harness = backend._time_harness

    def note(*arguments):
        with log.open("a") as stream:
            stream.write("timed\n")
        return time_harness(*arguments)

    monkeypatch.setattr(backend, "_time_harness", note)
    return lambda: log.read_text().splitlines()


@pytest.mark.needs("cc")
@pytest.mark.usefixtures("brief_costs")
def test_all_is_compiled_once_and_nothing_beside_what_is_timed(subject, calls):
    schemes = ["fp32", "int8"]
    with open_builder(subject, ["c"]) as builder:
        builder.build(schemes[:1])
        artefacts = builder.build(schemes)  # what was begun is not begun again
        targets = [*estimate_targets(subject, schemes)]  # wants the same libraries at the same time
        assert targets
        assert all(cost.own for cost in time_artefacts(artefacts))
    lines = [line for line in calls() if "version" not in line]
    begun = [line for line in lines if line.startswith("begin")]
    for what in ("-shared", " -c ", "-o harness"):
        assert sum(what in line for line in begun) == len(schemes), (what, begun)
    assert lines[-len(schemes) :] == ["timed"] * len(schemes)
    assert lines.count("timed") == len(schemes)
