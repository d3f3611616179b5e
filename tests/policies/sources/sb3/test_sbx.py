"""Zips of SBX whose pickled policy is forged: what has no portable form, or is not to be trusted, is one line.

Files that SBX itself saved are in test_libraries.py.
"""

import base64
import json
import lzma
import pickle
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from quarl_bench.errors import PolicyError
from quarl_bench.policies.head import HeadKind
from quarl_bench.policies.sources.sb3.sbx import OPERATIONS
from quarl_bench.policies.sources.sb3.zip import read_zip
from quarl_bench.quantization.activations import Activation
from tests.policies.sources.test_libraries import DATA
from tests.support.agents import read_members, write_members
from tests.support.hostile import CANARY, LIVE
from tests.support.sizes import draw_examples

MODULE = "sbx.ppo.policies"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fresh working directory, and stand-ins for the names that pickles mention."""
    monkeypatch.chdir(tmp_path)
    parents = {name.rsplit(".", count)[0]: () for name in NAMES for count in (1, 2)}
    for name, attributes in (parents | NAMES).items():
        module = types.ModuleType(name)
        for attribute in attributes:
            one = type(attribute, (), {"__module__": name, "__qualname__": attribute})
            setattr(module, attribute, one)
        monkeypatch.setitem(sys.modules, name, module)


NAMES = {
    MODULE: ("PPOPolicy", "Actor", "Custom"),
    "jax._src.array": ("_reconstruct_array",),
    "jax._src.custom_derivatives": ("custom_jvp",),
    "flax.training.train_state": ("TrainState",),
}


class Made:
    """Pickled as a call of this name, with a state."""

    def __init__(self, module: str, name: str, state: Any = None, args: tuple[Any, ...] = ()) -> None:
        self.made = (getattr(sys.modules[module], name), args, *(() if state is None else (state,)))

    def __reduce__(self) -> Any:
        return self.made


def array(numbers: Any) -> Made:
    numbers = np.asarray(numbers)
    make, args, state = numbers.__reduce__()
    return Made("jax._src.array", "_reconstruct_array", None, (make, args, state, {}))


def dense(inputs: int, outputs: int, value: float = 0.5) -> dict[str, Any]:
    kernel = np.full((inputs, outputs), value, np.float32)
    return {"kernel": array(kernel), "bias": array(np.zeros(outputs, np.float32))}


def forge(params: Any = None, **state: Any) -> bytes:
    """A pickled PPO of 3 inputs and 2 outputs."""
    params = {"Dense_0": dense(3, 8), "Dense_1": dense(8, 2)} if params is None else params
    relu = {"__module__": "jax._src.nn.functions", "__name__": "relu"}
    state = {
        "actor": Made(MODULE, "Actor"),
        "actor_state": Made("flax.training.train_state", "TrainState", {"params": {"params": params}}),
        "activation_fn": Made("jax._src.custom_derivatives", "custom_jvp", relu),
    } | state
    return pickle.dumps(Made(MODULE, "PPOPolicy", state))


def pack(pickled: bytes | str) -> Path:
    """The zip of a PPO whose policy is this."""
    members = read_members(lzma.decompress((DATA / "sbx" / "ppo.zip.xz").read_bytes()))
    settings = json.loads(members["data"])
    text = pickled if isinstance(pickled, str) else base64.b64encode(pickled).decode()
    settings["policy"] = {":serialized:": text}
    Path("agent.zip").write_bytes(write_members(members | {"data": json.dumps(settings).encode()}))
    return Path("agent.zip")


def refuse(pickled: bytes | str, said: str) -> None:
    with pytest.raises(PolicyError, match=said) as caught:
        read_zip(pack(pickled), normalization=None)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 600
    assert not Path(CANARY).exists()


def test_a_forged_policy_acts_as_its_numbers_say() -> None:
    policy = read_zip(pack(forge()), normalization=None).policy
    assert [layer.activation for layer in policy.net.layers] == [Activation.RELU, Activation.NONE]
    assert policy.head.kind is HeadKind.CLIP
    np.testing.assert_array_equal(policy.act(np.ones((1, 3), np.float32)), [[3.0, 3.0]])  # 8 * 0.5 * 1.5, clipped


@pytest.mark.parametrize("name", LIVE)
def test_nothing_of_a_policy_is_executed(name: str) -> None:
    refuse(LIVE[name], "agent.zip")


def test_a_call_among_its_attributes_is_not_made() -> None:
    class Evil:
        def __reduce__(self) -> Any:
            return (Path.touch, (Path(CANARY),))

    refuse(forge(anything=Evil()), r"would load 'pathlib\.|and nothing of it was executed")


def share(count: int) -> dict[str, Any]:
    """Many layers of one kernel."""
    one = dense(512, 512)
    return {f"Dense_{number}": one for number in range(count)}


FORGED: dict[str, tuple[Callable[[], bytes | str], str]] = {
    "no_base64": (lambda: "%%%", "no base64"),
    "empty": (lambda: "", "no mark|damaged"),
    "cut": (lambda: forge()[:-40], "damaged"),
    "another_class": (lambda: pickle.dumps({"a": 1}), r"none of sbx\.ppo\.policies"),
    "own_actor": (lambda: forge(actor=Made(MODULE, "Custom")), r"its network is 'sbx\.ppo\.policies\.Custom'"),
    "no_actor": (lambda: forge(actor=None), "its network is 'none'"),
    "no_weights": (lambda: forge(actor_state=None), "too few layers"),
    "branch": (lambda: forge({"Dense_0": dense(3, 2), "NatureCNN_0": {}}), "its actor has NatureCNN_0"),
    "gap": (lambda: forge({"Dense_0": dense(3, 8), "Dense_2": dense(8, 2)}), "its actor has Dense_2"),
    "lambda": (lambda: forge(activation_fn=3), "its activation 'no function'"),
    "strange": (
        lambda: forge(
            activation_fn=Made("jax._src.custom_derivatives", "custom_jvp", {"__module__": "mine", "__name__": "relu"})
        ),
        r"its activation 'mine\.relu'",
    ),
    "nan": (lambda: forge({"Dense_0": dense(3, 2, np.nan)}), "NaN or infinite weights"),
    "widths": (lambda: forge({"Dense_0": dense(3, 8), "Dense_1": dense(9, 2)}), "cannot follow"),
    "inputs": (lambda: forge({"Dense_0": dense(4, 2)}), "cannot follow"),
    "outputs": (lambda: forge({"Dense_0": dense(3, 5)}), "5 outputs for 2"),
    "rank": (
        lambda: forge({"Dense_0": dense(3, 2) | {"kernel": array(np.ones((3, 2, 1)))}}),
        r"Dense_0 kernel has the shape \(3, 2, 1\)",
    ),
    "nothing": (lambda: forge({"Dense_0": dense(3, 2) | {"bias": array(np.ones(0))}}), "Dense_0 bias has the shape"),
    "no_kernel": (lambda: forge({"Dense_0": {}}), "Dense_0 kernel is no array"),
    "text": (lambda: forge({"Dense_0": dense(3, 2) | {"bias": array(np.array(["a"]))}}), "Dense_0 bias is no array"),
    "infinite": (lambda: forge({"Dense_0": dense(3, 2) | {"bias": array(np.array([1e300, 0]))}}), "NaN or infinite"),
    "mountain": (lambda: forge(share(2000)), "numbers in layers that share their memory"),
    "long": (lambda: b"\x80\x04" + b"N0" * OPERATIONS, f"more than {OPERATIONS} operations"),
    "deep": (lambda: b"\x80\x04)" + b"\x85" * 500_000 + b".", r"none of sbx\.ppo\.policies"),
    "long_name": (lambda: b"\x80\x04cjax\n" + b"a" * 300 + b"\n.", "would load"),
}  # fmt: skip


@pytest.mark.parametrize("name", FORGED)
def test_what_is_not_to_be_trusted_is_refused(name: str) -> None:
    make, said = FORGED[name]
    refuse(make(), said)


def test_settings_of_very_many_parts_are_not_parsed() -> None:
    members = read_members(lzma.decompress((DATA / "sbx" / "ppo.zip.xz").read_bytes()))
    Path("agent.zip").write_bytes(write_members(members | {"data": b"[" + b"1," * 2**21 + b"1]"}))
    with pytest.raises(PolicyError, match="more parts than any settings"):
        read_zip(Path("agent.zip"), normalization=None)


PLACES = st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.binary(min_size=1, max_size=4)), max_size=6)


@draw_examples(60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=10_000)
@given(PLACES)
def test_any_bytes_of_the_policy(places: list[tuple[float, bytes]]) -> None:
    members = read_members(lzma.decompress((DATA / "sbx" / "ppo.zip.xz").read_bytes()))
    changed = bytearray(base64.b64decode(json.loads(members["data"])["policy"][":serialized:"]))
    for share, patch in places:
        start = int(share * len(changed))
        changed[start : start + len(patch)] = patch
    said = ""
    try:
        read_zip(pack(bytes(changed)), normalization=None)
    except PolicyError as error:
        said = str(error)
    assert "\n" not in said
