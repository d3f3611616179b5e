"""May the controller be shipped? These tests decide it, with intervals."""

import pytest

from quarl_bench.testing import assert_quantizable
from rover import Dock, controller


@pytest.mark.parametrize("scheme", ["fp16", "w8", "int8"])
def test_these_keep_95_percent(assert_quantizable, scheme):
    assert_quantizable("rover:controller", "rover:Dock", scheme)


def test_two_bits_are_too_few():
    with pytest.raises(AssertionError, match="refuted"):
        assert_quantizable(controller(), Dock, "int2", margin=0.05)


def test_the_artefact_is_small_and_reproduces_its_golden_pairs(quarl_subject, tmp_path):
    subject = quarl_subject("rover:controller", "rover:Dock")
    deployed = subject.export("int8", "litert", tmp_path / "rover-int8")  # re-runs every golden pair
    assert len(deployed.artefact.golden.actions) > 100
    assert sum(map(len, deployed.artefact.files.values())) < 4096
