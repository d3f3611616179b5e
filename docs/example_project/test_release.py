"""May the controller be shipped? These tests decide it, with intervals."""

import numpy as np
import pytest
import torch

from quarl_bench import assert_quantizable
from rover import Dock, controller


@pytest.mark.parametrize("scheme", ["fp16", "w8", "int8"])
def test_these_keep_95_percent(assert_quantizable, scheme):
    assert_quantizable("rover:controller", "rover:Dock", scheme)


def test_eight_bits_keep_most_of_what_counts(assert_quantizable):
    verdict = assert_quantizable(controller(), Dock, "int8", margin=0.1, floor=10.0, episodes=60, strict=False)
    assert verdict.outcome in ("supported", "inconclusive")
    assert not verdict.caveats or "proves nothing" not in verdict.caveats[-1]


def test_what_a_file_leaves_open_is_said(assert_quantizable, tmp_path):
    torch.save(controller().state_dict(), tmp_path / "weights.pth")
    verdict = assert_quantizable(
        tmp_path / "weights.pth", Dock, "fp16", episodes=100, name="controller", env_kwargs={"distance": 2.0},
        arch="0,relu,2", normalization="none",
    )  # fmt: skip
    assert verdict.low > verdict.threshold


def test_the_same_policy_in_other_forms(quarl_subject, tmp_path):
    subject = quarl_subject("rover:controller", "rover:Dock")
    assert subject.quantize("int8").act(np.zeros((1, 4), np.float32)).shape == (1, 2)
    assert subject.play("int8", range(5)).mean > 0.9 * subject.play("fp32", range(5)).mean
    deployed = subject.export("int8", "litert", tmp_path / "rover-int8")
    assert len(deployed.artefact.golden.actions) > 100


def test_two_bits_are_too_few():
    with pytest.raises(AssertionError, match="refuted"):
        assert_quantizable(controller(), Dock, "int2", margin=0.05)


def test_the_artefact_is_small(quarl_subject, tmp_path):
    deployed = quarl_subject("rover:controller", "rover:Dock").export("int8", "litert", tmp_path / "rover-int8")
    assert sum(map(len, deployed.artefact.files.values())) < 4096
