"""`quarl quantize`: what loads again is what was written."""

import json
import re
import shutil

import numpy as np
import pytest

from quarl_bench.errors import PolicyError
from quarl_bench.policies.head import HeadKind
from quarl_bench.policies.storage.fp32 import load_policy, save_policy
from quarl_bench.policies.storage.integers import load_integers
from quarl_bench.quantization.scheme import Scheme
from tests.support.balancer import ABOUT, BALANCER
from tests.support.strategies import make_policy


class TestQuantize:
    def test_weights_make_a_policy_folder(self, folder, quarl_json, quarl):
        result = quarl_json("quantize", "policy", "--scheme", "w3", "--output", "w3")
        stored = load_policy(folder / "w3")
        assert stored.sha256 == result["sha256"]
        expected = BALANCER.quantize(Scheme.parse("w3")).net.layers[0].weight
        np.testing.assert_array_equal(stored.policy.net.layers[0].weight, expected)
        assert result["levels"] == {"layers.0.weight": len(np.unique(expected))}
        source = load_policy(folder / "policy").sha256
        assert stored.metadata["quantization"] == {
            "scheme": "w3", "rounding": "nearest", "source_sha256": source, "levels": result["levels"],
            "calibration_states": 0,
        }  # fmt: skip
        assert stored.metadata["algo"] == "ppo"
        assert quarl_json("evaluate", "w3", "--episodes", 5)["measured"]["episodes"] == 5
        assert re.search(r"^  w3 +return", quarl("evaluate", "w3", "--episodes", 3)[1], re.MULTILINE)
        assert "w3 is rounded to w3 already" in quarl("evaluate", "w3", "--scheme", "w2", "--episodes", 3)[1]

    @pytest.mark.parametrize("scheme", ["int8", "int4pc", "int5uncal"])
    def test_integers_load_as_they_were(self, folder, quarl_json, quarl, scheme):
        save_policy(make_policy(HeadKind.ARGMAX, normalized=True), folder / "policy", ABOUT)
        result = quarl_json("quantize", "policy", "--scheme", scheme, "--output", "integers")
        loaded = load_integers(folder / "integers")
        manifest = json.loads((folder / "integers" / "manifest.json").read_text())
        assert loaded.sha256 == result["sha256"]
        assert manifest["quantization"]["scheme"] == result["scheme"] == scheme
        assert max(result["levels"].values()) <= 2 ** Scheme.parse(scheme).bit_width
        states = np.random.default_rng(0).standard_normal((300, 4)).astype(np.float32)
        evaluated = quantize_again(folder / "policy", scheme)
        np.testing.assert_array_equal(loaded.policy.outputs(states), evaluated.outputs(states))
        code, _, err = quarl("sweep", "integers")
        assert code == 2
        assert "holds integers, which are not quantized again; pass the fp32 policy" in err
        played = quarl_json("evaluate", "integers", "--episodes", 3)
        assert (played["scheme"], played["measured"]["episodes"]) == (scheme, 3)
        code, _, err = quarl("evaluate", "integers", "--scheme", "int6")
        assert (code, "are not quantized again; no --scheme" in err) == (2, True)
        code, _, err = quarl("evaluate", "integers", "--states", "5")
        assert (code, "no fp32 policy beside it" in err) == (2, True)

    def test_the_environment_that_was_named_is_kept(self, folder, quarl_json):
        save_policy(BALANCER, folder / "homeless", {"algo": "ppo"})
        quarl_json("quantize", "homeless", "--scheme", "w4", "--environment", "cartpole", "--output", "w4")
        assert quarl_json("evaluate", "w4", "--episodes", 3)["environment"] == "CartPole-v1"

    def test_a_damaged_integer_folder_is_named(self, folder, quarl_json):
        quarl_json("quantize", "policy", "--scheme", "int8", "--output", "integers")
        file = folder / "integers" / "integers.safetensors"
        whole = file.read_bytes()
        file.write_bytes(whole[:-1])
        with pytest.raises(PolicyError, match="sha256 is not the manifest's"):
            load_integers(folder / "integers")
        file.write_bytes(whole)
        manifest = folder / "integers" / "manifest.json"
        for old, new in (('"linear"', '"circular"'), ('"bit_width"', '"bits"'), ('"int8"', "int8"), ("1,", "7,")):
            text = manifest.read_text()
            assert old in text
            manifest.write_text(text.replace(old, new, 1))
            with pytest.raises(PolicyError, match="manifest"):
                load_integers(folder / "integers")
            manifest.write_text(text)
        file.unlink()
        with pytest.raises(PolicyError, match="No such file"):
            load_integers(folder / "integers")

    def test_only_a_policy_is_replaced(self, folder, quarl, quarl_json):
        for scheme in ("w8", "int8", "w4"):  # either form by the other
            quarl_json("quantize", "policy", "--scheme", scheme, "--output", "there")
        assert sorted(path.name for path in (folder / "there").iterdir()) == ["manifest.json", "policy.safetensors"]
        for name in ("model.tflite", "photo.jpg"):  # an artefact's folder, and anybody's
            (folder / name).mkdir()
            (folder / name / "manifest.json").write_text("{}")
            (folder / name / name).touch()
            code, _, err = quarl("quantize", "policy", "--output", name)
            said = f"{name} exists and holds no policy.safetensors or integers.safetensors; it is left alone"
            assert (code, said in err, err.count("\n")) == (2, True, 1)
            assert (folder / name / name).exists()

    def test_the_policy_itself_is_no_output(self, folder, quarl):
        code, _, err = quarl("quantize", "policy", "--output", "../" + folder.name + "/policy")
        assert code == 2
        assert "it is read, and would be lost" in err
        assert load_policy(folder / "policy").metadata == ABOUT


def quantize_again(path, scheme):
    from quarl_bench.environments.registry import find_environment
    from quarl_bench.evaluation.calibration import quantize_calibrated

    return quantize_calibrated(load_policy(path).policy, Scheme.parse(scheme), find_environment("cartpole"))


def test_a_baseline_is_not_replaced_by_what_is_made_of_it(folder, quarl):
    shutil.copytree(folder / "policy", folder / "baselines" / "policies" / "ppo-cartpole-seed7")
    before = (folder / "baselines/policies/ppo-cartpole-seed7/manifest.json").read_bytes()
    code, _, err = quarl("quantize", "ppo-cartpole-seed7", "--output", "baselines/policies/ppo-cartpole-seed7")
    assert (code, "it is read, and would be lost" in err) == (2, True)
    assert (folder / "baselines/policies/ppo-cartpole-seed7/manifest.json").read_bytes() == before
