"""What a policy costs on a microcontroller and in a circuit."""

import pytest

from quarl_bench.backends.c import microcontroller
from quarl_bench.checking.targets import estimate_targets
from quarl_bench.errors import QuarlError
from quarl_bench.experiments.store import Store, StorePaths
from quarl_bench.system.programs import Program


@pytest.mark.needs("cc")
def test_targets_say_what_they_cost_or_lack(subject, monkeypatch):
    monkeypatch.setattr(microcontroller, "PROGRAMS", (Program("no-such-compiler", "gcc-arm-none-eabi"),))
    found = list(estimate_targets(subject, ["fp32", "int8", "int2"]))
    units = {(cost.target, cost.scheme, cost.unit): cost.value for cost in found if not cost.reason}
    assert 0 < units["xc7a15t", "int2", "LUT"] < units["xc7a15t", "int8", "LUT"] < 10_400
    assert not any(scheme == "fp32" for _, scheme, _ in units)
    assert {cost.reason for cost in found if cost.reason} == {
        "cortex-m4: no-such-compiler is not installed; apt-get install gcc-arm-none-eabi"
    }


def test_a_cortex_m4_stores_weights_in_bytes(subject):
    try:
        for program in microcontroller.PROGRAMS:
            program.find("cortex-m4")
    except QuarlError as error:
        pytest.skip(str(error))
    found = {(cost.scheme, cost.unit): cost.value for cost in estimate_targets(subject, ["fp32", "int8"])}
    weights = sum(layer.weight.size for layer in subject.stored.policy.net.layers)
    assert 4 * weights < found["fp32", "bytes of flash"] < 6 * weights
    assert weights < found["int8", "bytes of flash"] < 2 * weights
    assert weights / 4 < found["int8", "instructions"] < 20 * weights


@pytest.mark.needs("arm-none-eabi-gcc", "qemu-system-arm", "make")
def test_counts_are_kept_and_asked_again_of_other_tools(subject, monkeypatch, tmp_path):
    subject.store = Store(StorePaths(tmp_path))
    first = list(estimate_targets(subject, ["int8"]))
    with monkeypatch.context() as patched:
        patched.setattr(microcontroller, "make_for_microcontroller", None)
        assert list(estimate_targets(subject, ["int8"])) == first
    (kept,) = (tmp_path / "microcontroller").glob("*.json")
    kept.write_text("{")
    damaged = [cost.reason for cost in estimate_targets(subject, ["int8"]) if cost.reason]
    assert [reason.endswith("delete it") for reason in damaged] == [True]
    kept.unlink()
    monkeypatch.setattr("quarl_bench.checking.targets.describe_microcontroller", lambda: "another compiler")
    assert list(estimate_targets(subject, ["int8"])) == first
    assert [path.name for path in (tmp_path / "microcontroller").glob("*.json")] != [kept.name]
