"""Where fewer bits pay, in sentences."""

import pytest

from quarl_bench.checking.costs import ArtefactCost
from quarl_bench.checking.targets import TargetCost
from quarl_bench.checking.worth import list_worth


def cost(backend, scheme, median, own=None):
    return ArtefactCost(backend, scheme, 100, median, 2 * median, own=own)


def test_a_scheme_that_is_slower_here_says_so_with_both_times():
    costs = [
        cost("litert", "fp32", 9.7),
        cost("litert", "int8", 21.6),
        cost("onnx", "fp32", 20),
        cost("onnx", "int8", 21),
    ]
    (slower,) = list_worth(costs, [], "int8")
    assert slower == "It is slower here than fp32: litert 21.6 against 9.7 us a call."
    assert not list(list_worth(costs[2:], [], "int8"))
    own = [cost("c", "fp32", 18.7, 500.0), cost("c", "int8", 60.0, 200.0)]  # Python's own time does not count
    assert not list(list_worth(own, [], "int8"))
    (slower,) = list_worth([own[0], cost("c", "int8", 1.0, 700.0)], [], "int8")
    assert slower.endswith("c 700 against 500 ns, its code alone.")


@pytest.mark.parametrize(
    ("flash", "instructions", "said"),
    [(400, 4_000, "it pays there"), (990, 9_900, "it does not pay there"), (400, 12_000, "it pays in one, not in the")],
)
def test_what_bits_save_elsewhere_is_weighed(flash, instructions, said):
    targets = [
        TargetCost("cortex-m4", scheme, unit, value, "emulated")
        for scheme, values in (("fp32", (1000, 10_000)), ("int8", (flash, instructions)))
        for unit, value in zip(("bytes of flash", "instructions"), values, strict=True)
    ]
    targets += [
        TargetCost("xc7a15t", "int6", "LUT", 900.0, "estimated"),
        TargetCost("xc7a15t", "int6", "cycles", 62.0, "estimated"),
        TargetCost("xc7a15t", "int8", reason="no design of int8 fits"),
    ]
    targets += [
        TargetCost("cortex-m4", "int6", unit, value, "emulated")
        for unit, value in (("bytes of flash", 300), ("instructions", 9_000))
    ]
    targets.append(TargetCost("cortex-m4", "int7", "bytes of flash", 0.95 * flash, "emulated"))  # next to nothing
    core, smaller, circuit = list_worth([], targets, "int8")
    assert smaller == "There int6 takes 300 bytes of flash and 9,000 instructions (emulated)."
    assert said in core
    assert f"{instructions:,} instructions against 10,000 (emulated)" in core
    assert "int6 900 LUT and 62 cycles; fp32 has no design" in circuit
    assert not list(list_worth([], targets[:2], "int8"))  # nothing to compare with
