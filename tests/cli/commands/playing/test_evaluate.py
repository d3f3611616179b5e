"""`quarl evaluate`: a policy against its fp32 self, in the simulation and as an artefact."""

import io
import json
import re
import sys

import numpy as np
import pytest

from quarl_bench.cli import main
from quarl_bench.errors import PolicyError
from quarl_bench.evaluation import rollouts
from quarl_bench.evaluation.state_agreement import compare_states
from quarl_bench.policies.storage.fp32 import load_policy, save_policy
from quarl_bench.policies.storage.integers import load_integers
from tests.support.balancer import ABOUT, BALANCER
from tests.support.strategies import make_linear_policy


class TestEvaluate:
    def test_a_pair_of_returns_and_a_verdict(self, folder, quarl, quarl_json):
        result = quarl_json("evaluate", "policy", "--scheme", "w8", "--episodes", 70)
        assert result["environment"] == "CartPole-v1"
        assert result["measured"]["mean"] == result["reference"]["mean"] == 500.0
        assert result["verdict"]["outcome"] == "supported"
        assert "states" not in result
        code, out, err = quarl("evaluate", "policy", "--scheme", "w8", "--episodes", 2)
        assert (code, err) == (0, "")
        assert "fp32      return 500.00 +- 0.00" in out
        assert re.search(r"same action in 9\d\.\d\d% of its states", out)

    def test_integers_are_held_against_the_policy_that_is_named(self, folder, quarl, quarl_json):
        quarl_json("quantize", "policy", "--scheme", "int8", "--output", "integers")
        arguments = ("evaluate", "integers", "--against", "policy", "--episodes", 5)
        found = quarl_json(*arguments, "--states", 100)
        assert (found["scheme"], found["states"]["states"]) == ("int8", 100)
        assert found["reference"]["policy_sha256"] == [load_policy(folder / "policy").sha256]
        assert found["measured"]["policy_sha256"] == [load_integers(folder / "integers").sha256]
        manifest = json.loads((folder / "integers" / "manifest.json").read_text())
        manifest |= {"seed": 3, "recipe": {"timesteps": 200}}
        (folder / "integers" / "manifest.json").write_text(json.dumps(manifest))
        save_policy(BALANCER, folder / "policy", ABOUT | {"seed": 0, "recipe": {"timesteps": 1000}})
        out = quarl(*arguments)[1]
        assert "trained for 1,000 and 200 environment steps" in out
        assert "of training seeds 0 and 3" in out
        code, _, err = quarl("evaluate", "policy", "--against", "policy")
        assert (code, "holds no integers" in err) == (2, True)
        save_policy(BALANCER, folder / "policy", ABOUT | {"environment": "Acrobot-v1"})
        assert quarl(*arguments)[0] == 2

    def test_sampled_actions_have_common_random_numbers(self, folder, quarl, quarl_json):
        arguments = ("evaluate", "policy", "--episodes", 5, "--sampled")
        result = quarl_json(*arguments, "--scheme", "w32")
        assert not result["measured"]["deterministic"]
        assert not result["reference"]["deterministic"]
        assert result["measured"]["per_policy"] == result["reference"]["per_policy"]
        assert result["reference"]["mean"] < 500.0  # the likeliest action would balance
        assert quarl_json(*arguments)["measured"]["mean"] == result["reference"]["mean"]
        assert "5 episodes, sampled actions" in quarl(*arguments)[1]

    def test_at_a_terminal_what_is_played_is_said_before_it_is(self, folder, monkeypatch):
        class Terminal(io.StringIO):
            def isatty(self):
                return True

        def look(*arguments, **options):
            seen.append(streams[-1].getvalue())
            return measure(*arguments, **options)

        measure, seen, streams = rollouts.measure, [], []
        monkeypatch.setattr(rollouts, "measure", look)
        for stream, before in ((Terminal(), 1), (io.StringIO(), 0)):
            monkeypatch.setattr(sys, "stdout", stream)
            streams.append(stream)
            assert main(["evaluate", "policy", "--scheme", "w8", "--episodes", "2"]) == 0
            header = "CartPole-v1, 2 episodes, deterministic, measured on this machine\n"
            assert seen.pop(0) == header * before
            seen.clear()
            assert stream.getvalue().startswith(header)
            assert stream.getvalue().count(header) == 1

    def test_what_has_no_softmax_is_not_sampled(self, folder, quarl):
        save_policy(BALANCER, folder / "policy", ABOUT | {"algo": "dqn"})
        code, _, err = quarl("evaluate", "policy", "--sampled")
        assert (code, err.count("\n")) == (2, 1)
        assert "policy has no logits of a softmax" in err

    def test_states_are_compared_by_action_and_by_probability(self, folder, quarl, quarl_json):
        arguments = ("evaluate", "policy", "--episodes", 2, "--states", 300)
        same = quarl_json(*arguments, "--scheme", "w32")["states"]
        assert same == {"states": 300, "agreement": 1.0, "kl": 0.0}
        rounded = quarl_json(*arguments, "--scheme", "w2")["states"]
        assert rounded["agreement"] < 1.0
        assert rounded["kl"] > 0.0
        save_policy(BALANCER, folder / "policy", ABOUT | {"algo": "dqn"})
        assert quarl_json(*arguments, "--scheme", "w2")["states"]["kl"] is None
        assert "its outputs are no logits of a softmax" in quarl(*arguments, "--scheme", "w2")[1]
        assert "name one by --scheme" in quarl(*arguments)[2]

    def test_the_divergence_of_known_logits(self):
        states = np.eye(2, dtype=np.float32)
        one, other = make_linear_policy(np.diag([1.0, 2.0])), make_linear_policy(np.diag([2.0, -1.0]))
        found = compare_states(one, other, states, "a2c")
        p = np.exp([[1, 0], [0, 2]]) / np.exp([[1, 0], [0, 2]]).sum(1, keepdims=True)
        q = np.exp([[2, 0], [0, -1]]) / np.exp([[2, 0], [0, -1]]).sum(1, keepdims=True)
        assert found.kl == pytest.approx((p * np.log(p / q)).sum(1).mean(), rel=1e-6)
        assert (found.states, found.agreement) == (2, 0.5)
        with pytest.raises(PolicyError, match="no states"):
            compare_states(one, other, states[:0], "a2c")

    def test_a_zip_of_stable_baselines3(self, folder, quarl, quarl_json):
        import stable_baselines3 as sb3

        sb3.PPO("MlpPolicy", "CartPole-v1", n_steps=8, batch_size=8, seed=0, device="cpu").save(folder / "agent.zip")
        options = ("--algo", "ppo", "--normalization", "none", "--environment", "CartPole-v1", "--episodes", 3)
        assert quarl_json("evaluate", "agent.zip", *options)["measured"]["episodes"] == 3
        (folder / "broken.zip").write_bytes((folder / "agent.zip").read_bytes()[:100])
        code, _, err = quarl("evaluate", "broken.zip", *options)
        assert code == 2
        assert err.startswith("quarl evaluate: broken.zip")


def test_an_environment_of_ones_own_is_named_each_time(folder, quarl, quarl_json):
    """Its id is this process's own: a manifest that names it could not be played by any other."""
    (folder / "mine.py").write_text(
        "from gymnasium.envs.classic_control import CartPoleEnv as Base\n\n"
        "class Mine(Base):\n    max_episode_steps = 50\n"
    )
    mine = ("--environment", "mine:Mine")
    for scheme in ("int8", "w4"):
        quarl_json("quantize", "policy", "--scheme", scheme, *mine, "--output", scheme)
        assert json.loads((folder / scheme / "manifest.json").read_text())["environment"] == "CartPole-v1"
        assert quarl_json("evaluate", scheme, "--episodes", 2, *mine)["environment"] == "mine.Mine-v0"
        assert quarl_json("evaluate", scheme, "--episodes", 2)["environment"] == "CartPole-v1"
    manifest = folder / "w4" / "manifest.json"
    manifest.write_text(manifest.read_text().replace("CartPole-v1", "mine:Mine"))
    code, _, err = quarl("evaluate", "w4", "--episodes", 2)
    assert (code, "unknown environment 'mine:Mine'" in err) == (2, True)  # a file's word imports nothing


@pytest.mark.needs("litert", "cc")
def test_evaluate_plays_the_artefact_and_says_so(folder, quarl, quarl_json):
    simulated = quarl_json("evaluate", "policy", "--scheme", "int8", "--episodes", 5)
    assert "backend" not in simulated
    for backend in ("litert", "c"):
        played = quarl_json("evaluate", "policy", "--scheme", "int8", "--episodes", 5, "--backend", backend)
        assert played["measured"] == simulated["measured"]
        assert played["backend"]["name"] == backend
    _, text, _ = quarl("evaluate", "policy", "--episodes", 2, "--backend", "c")
    assert re.search(r"fp32 is played by its c artefact, in .*, kernel strict; \d+ golden pairs re-run", text)
    code, _, error = quarl("evaluate", "policy", "--scheme", "w8", "--backend", "dump")
    assert (code, error.count("\n")) == (2, 1)


def test_a_policy_without_an_environment_says_how_to_name_one(folder, quarl):
    save_policy(BALANCER, folder / "policy", {})
    code, _, err = quarl("evaluate", "policy", "--episodes", 2)
    assert (code, err) == (
        2,
        "quarl evaluate: policy: the policy names no environment; pass --environment (in Python: env=)\n",
    )
    assert quarl("evaluate", "policy", "--episodes", 2, "--environment", "cartpole")[0] == 0
    assert quarl("evaluate", "policy", "--episodes", 2, "--environment", "Cart")[0] == 2
    code, _, err = quarl("evaluate", "policy", "--episodes", 2, "--environment", "Acrobot-v1")
    assert code == 2
    assert "cannot play Acrobot-v1" in err
    assert quarl("quantize", "policy", "--scheme", "w8", "--output", "w8")[0] == 0  # needs none
