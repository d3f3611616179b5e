"""Files that try to execute code, fill the memory or lead elsewhere: nothing runs, one line says why they are refused.

The canary is a file that every payload would create. Those payloads that are live are proven so with `pickle` itself.
"""

import base64
import contextlib
import io
import os
import pickle
import struct
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from quarl_bench.errors import PolicyError
from quarl_bench.experiments.policy_source import PolicySource, open_task
from quarl_bench.policies.sources.archive import END, END_SIZE, open_archive
from quarl_bench.policies.sources.sb3.state_dict import read_weights
from quarl_bench.policies.sources.sb3.vecnormalize import KNOWN, read_statistics
from quarl_bench.policies.sources.sb3.zip import read_zip
from tests.support.agents import (
    Members,
    forge,
    load_state,
    read_members,
    replace_pickle,
    save_state,
    saved_members,
    write_members,
)
from tests.support.hostile import CANARY, COMMAND, LIVE, TOUCH, write_text
from tests.support.sizes import draw_examples

INERT: dict[str, bytes] = {  # refused too, though `pickle` itself would not run them either
    "persistent": b"Pos.system\n.",
    "extension": b"\x80\x02\x82\x01.",
    "new_object": b"\x80\x02csubprocess\nPopen\n)\x81.",
    "new_object_ex": b"\x80\x04\x8c\x02os\x8c\x06system\x93)}\x92.",
    "set_state": b"\x80\x02ccollections\nOrderedDict\n}(" + write_text("__setstate__") + b"cos\nsystem\nub.",
    "state_of_a_class": b"\x80\x02ccollections\nOrderedDict\n}(" + write_text("update") + b"Nub.",
    "buffer": b"\x80\x05\x97.",
    "set": b"\x80\x04\x8f(K\x01\x90.",
    "underflow": b"\x80\x02RRR.",
    "mark": b"\x80\x02((((.",
    "no_mark": b"\x80\x02t.",
    "far_memo": b"\x80\x02Nr\xff\xff\xff\xff.",
    "memo_hole": b"\x80\x02h\x07.",
    "long_bytes": b"\x80\x04\x8e" + struct.pack("<Q", 2**62) + b"x.",
    "many_digits": b"L" + b"9" * 10_000 + b"L\n.",
    "no_stop": b"\x80\x02}",
    "empty": b"",
    "big_bytearray": b"\x80\x02cbuiltins\nbytearray\n(L" + b"9" * 12 + b"L\ntR.",
    "slow_numbers": b"\x80\x02}(\x8a\x09" + (5 * (2**61 - 1)).to_bytes(9, "little") + b"K\x01u.",
    "slow_memo": b"\x80\x02Np" + str(2**61 - 1).encode() + b"\n.",
    "number_with_a_point": b"\x80\x02}G" + struct.pack(">d", 2.0**80) + b"Ns.",
    "slow_key": b"\x80\x02}N" + b"".join(b"q\x00h\x00h\x00\x86" for _ in range(60)) + b"Ns.",
}
PAYLOADS = LIVE | INERT
NOT_LIVE_HERE = {"torch_load"}  # needs a whole file of torch


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A fresh working directory, which no test may leave with a canary."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refuse(data: bytes, said: str = "agent") -> str:
    """`data` as an agent is refused in one line, and executes nothing."""
    Path("agent.zip").write_bytes(data)
    with pytest.raises(PolicyError, match=said) as caught:
        read_zip(Path("agent.zip"), normalization=None)
    return check_line(caught.value)


def check_line(error: BaseException) -> str:
    assert "\n" not in str(error)
    assert len(str(error)) < 600
    assert not Path(CANARY).exists()
    return str(error)


@pytest.mark.needs("touch")
@pytest.mark.parametrize("name", sorted(LIVE.keys() - NOT_LIVE_HERE))
def test_payloads_are_live(name: str) -> None:
    with contextlib.suppress(Exception):  # it has done its work
        pickle.loads(LIVE[name])
    assert Path(CANARY).exists()


@pytest.mark.parametrize("name", PAYLOADS)
def test_weights_that_execute_are_refused(name: str) -> None:
    def poison(members: Members) -> None:
        members["policy.pth"] = replace_pickle(members["policy.pth"], PAYLOADS[name])

    assert "policy.pth" in refuse(forge(poison))


@pytest.mark.parametrize("name", PAYLOADS)
def test_statistics_that_execute_are_refused(name: str) -> None:
    Path("vecnormalize.pkl").write_bytes(PAYLOADS[name])
    with pytest.raises(PolicyError, match=r"vecnormalize\.pkl") as caught:
        read_statistics(Path("vecnormalize.pkl"))
    check_line(caught.value)
    Path("agent.zip").write_bytes(forge())
    Path("agent").mkdir()
    Path("vecnormalize.pkl").rename("agent/vecnormalize.pkl")
    with pytest.raises(PolicyError, match=r"vecnormalize\.pkl") as caught:
        read_zip(Path("agent.zip"))
    check_line(caught.value)


@pytest.mark.parametrize("name", PAYLOADS)
def test_pickles_that_nobody_needs_are_not_opened(name: str) -> None:
    """Every `:serialized:` of the JSON, the optimizer, and the variables."""
    pickled = base64.b64encode(PAYLOADS[name]).decode()
    poison = {":serialized:": pickled}

    def replace(members: Members) -> None:
        members["pytorch_variables.pth"] = replace_pickle(members["policy.pth"], PAYLOADS[name])
        members["policy.optimizer.pth"] = PAYLOADS[name]

    keys = ("policy_class", "policy_kwargs", "observation_space", "action_space", "lr_schedule", "clip_range")
    Path("agent.zip").write_bytes(forge(replace, **dict.fromkeys(keys, poison), anything=poison))
    agent = read_zip(Path("agent.zip"), normalization=None)
    assert agent.policy.act(np.zeros((1, 4), np.float32)).shape == (1,)
    assert not Path(CANARY).exists()


@pytest.mark.parametrize("name", [name for name in LIVE if LIVE[name][:1] in b"\x80(]}"])
def test_a_pickle_for_a_zip_is_refused(name: str) -> None:
    refuse(LIVE[name], "not a zip|a bare pickle")


def test_a_known_name_is_not_called_either() -> None:
    """numpy.core.multiarray._reconstruct, given a class of choice, would make an object of it."""
    Path("a.pkl").write_bytes(b"\x80\x02cnumpy.core.multiarray\n_reconstruct\n(cos\nsystem\nK\x00\x85C\x01btR.")
    with pytest.raises(PolicyError, match=r"would load 'os\.system'"):
        read_statistics(Path("a.pkl"))
    assert not {name for name in KNOWN if name.split(".")[0] in {"os", "posix", "builtins", "subprocess", "torch"}}


DOUBLES = "".join(f"b{i + 1}: &b{i + 1} {{<<: [*b{i}, *b{i}]}}\n" for i in range(60))
MERGES = "b0: &b0 {x: 1}\n" + DOUBLES
YAML: dict[str, str] = {
    "apply": f"!!python/object/apply:os.system ['{COMMAND}']",
    "apply_eval": f'!!python/object/apply:eval ["{TOUCH}"]',
    "new": f"!!python/object/new:os.system ['{COMMAND}']",
    "new_state": f'!!python/object/new:type {{args: [z, [], {{extend: !!python/name:exec }}], listitems: "{TOUCH}"}}',
    "name": "normalize: !!python/name:os.system",
    "module": "normalize: !!python/module:os",
    "object": "normalize: !!python/object:subprocess.Popen {}",
    "inside": f"!!python/object/apply:collections.OrderedDict [[[a, !!python/object/apply:os.system ['{COMMAND}']]]]",
    "tuple": f"normalize: !!python/tuple [!!python/object/apply:os.system ['{COMMAND}']]",
    "keywords": "!!python/object/apply:collections.OrderedDict {args: [[[a, b]]], state: {x: 1}}",
    "scalar": "!!python/object/apply:collections.OrderedDict hello",
    "merges": MERGES,
    "deep": "[" * 20_000,
    "long": "a: " + "x" * 70_000,
    "many_digits": "normalize: " + "9" * 10_000,
    "not_text": "\x00\x01",
    "two_documents": "a: 1\n---\nb: 2",
    "timestamp": "normalize: 9999-99-99",
}  # fmt: skip


@pytest.mark.parametrize("file", ["config.yml", "args.yml"])
@pytest.mark.parametrize("name", YAML)
def test_yaml_that_executes_is_refused(name: str, file: str) -> None:
    Path("agent.zip").write_bytes(forge())
    Path("agent").mkdir()
    (Path("agent") / file).write_text(YAML[name])
    with pytest.raises(PolicyError, match=file) as caught:
        read_zip(Path("agent.zip"), normalization=None)
    check_line(caught.value)


def test_an_environment_id_imports_nothing() -> None:
    """`gymnasium.make` imports the module before a colon."""
    Path("evil.py").write_text(TOUCH)
    Path("agent.zip").write_bytes(forge())
    Path("agent").mkdir()
    Path("agent/args.yml").write_text("env: 'evil:CartPole-v1'")
    Path("agent/config.yml").write_text("{}")
    with pytest.raises(Exception, match="unknown environment 'evil:CartPole-v1'") as caught:
        open_task(PolicySource(Path("agent.zip")))
    check_line(caught.value)


def compress(members: Members) -> None:
    """A policy.pth that unpacks to 300 MB."""
    members["policy.pth"] = b"\0" * 300_000_000


def patch(data: bytes, signature: bytes, offset: int, value: bytes) -> bytes:
    """Overwrite a field of every zip record with this signature."""
    start = data.find(signature)
    while start >= 0:
        data = data[: start + offset] + value + data[start + offset + len(value) :]
        start = data.find(signature, start + 4)
    return data


def write_duplicates() -> bytes:
    stream = io.BytesIO(forge())
    with zipfile.ZipFile(stream, "a") as archive, pytest.warns(UserWarning, match="Duplicate name"):
        archive.writestr("data", "{}")
    return stream.getvalue()


def write_twins() -> bytes:
    """Torch's reader knows no case, and would take the second one."""
    stream = io.BytesIO(forge())
    with zipfile.ZipFile(stream, "a") as archive:
        archive.writestr("DATA", "{}")
    return stream.getvalue()


def write_link() -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        link = zipfile.ZipInfo("policy.pth")
        link.external_attr = 0o120777 << 16
        archive.writestr(link, "/etc/passwd")
    return stream.getvalue()


def write_bomb() -> bytes:
    members = dict(saved_members())
    compress(members)
    return write_members(members, zipfile.ZIP_DEFLATED)


def write_inner_bomb() -> bytes:
    def swell(members: Members) -> None:
        members["policy.pth"] = write_members({"a/data.pkl": b"\0" * 300_000_000}, zipfile.ZIP_DEFLATED)

    return forge(swell)


def write_liar() -> bytes:
    """Declares a kilobyte for what unpacks to a megabyte."""
    members = dict(saved_members()) | {"policy.pth": b"\0" * 2**20}
    data = write_members(members, zipfile.ZIP_DEFLATED)
    size = struct.pack("<L", 2**20)
    return data.replace(size, struct.pack("<L", 2**10))


def test_a_member_is_not_unpacked_beyond_what_it_declares() -> None:
    """100 MB behind a header that says 100 bytes."""
    data = write_members({"data": b"\0" * 100_000_000}, zipfile.ZIP_DEFLATED)
    archive = open_archive(data.replace(struct.pack("<L", 100_000_000), struct.pack("<L", 100)), "x.zip", 2**20)
    tracemalloc.start()
    with pytest.raises(PolicyError, match="damaged"):
        archive.read("data", 2**20)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10_000_000


ARCHIVES: dict[str, tuple[Callable[[], bytes], str]] = {
    "bomb": (write_bomb, "unpacks to 300000000 bytes"),
    "inner_bomb": (write_inner_bomb, "unpacks to 300000000 bytes, more than"),
    "liar": (write_liar, "damaged|not a zip|torch"),
    "duplicates": (write_duplicates, "two members have one name"),
    "twins": (write_twins, "two members have one name"),
    "link": (write_link, "is a link"),
    "traversal": (lambda: forge(lambda m: m.update({"../../evil": b"x"})), "leads out of the zip"),
    "absolute": (lambda: forge(lambda m: m.update({"/etc/evil": b"x"})), "leads out of the zip"),
    "backslashes": (lambda: forge(lambda m: m.update({"..\\evil": b"x"})), "leads out of the zip"),
    "inner_traversal": (
        lambda: forge(lambda m: m.update({"policy.pth": write_members({"../data.pkl": b"x"})})),
        "leads out of the zip",
    ),
    "encrypted": (lambda: patch(forge(), b"PK\x01\x02", 8, b"\x01\x00"), "is encrypted"),
    "unusual": (lambda: write_members(dict(saved_members()), zipfile.ZIP_BZIP2), "compressed in an unusual way"),
    "crowd": (lambda: forge(lambda m: m.update({f"{i}": b"" for i in range(5000)})), "5003|5004|5005|5006|any policy"),
    "directory": (lambda: patch(forge(), b"PK\x05\x06", 12, b"\xff\xff\xff\x7f"), "far more members"),
    "no_weights": (lambda: forge(lambda m: m.pop("policy.pth")), "no member 'policy.pth'"),
    "no_data": (lambda: write_members({"policy.pth": b""}), "no member 'data'"),
    "not_json": (lambda: forge(lambda m: m.update({"data": b"{"})), "not the JSON"),
    "deep_json": (lambda: forge(lambda m: m.update({"data": b"[" * 100_000})), "not the JSON"),
    "json_list": (lambda: forge(lambda m: m.update({"data": b"[]"})), "not a JSON object"),
    "many_digits": (lambda: forge(lambda m: m.update({"data": b"9" * 10_000})), "not the JSON"),
    "empty": (lambda: b"", "an empty file"),
    "text": (lambda: b"hello", "not a zip"),
    "cut": (lambda: forge()[:-30], "not a zip"),
    "weights_are_text": (lambda: forge(lambda m: m.update({"policy.pth": b"hello"})), "policy.pth: not a zip"),
    "old_torch": (lambda: forge(lambda m: m.update({"policy.pth": save_old()})), "policy.pth: not a zip"),
    "two_pickles": (
        lambda: forge(lambda m: m.update({"policy.pth": write_members({"a/data.pkl": b"", "b/data.pkl": b""})})),
        "not a state dictionary",
    ),
}  # fmt: skip


def save_old() -> bytes:
    stream = io.BytesIO()
    torch.save({"a": torch.ones(2)}, stream, _use_new_zipfile_serialization=False)
    return stream.getvalue()


@pytest.mark.parametrize("name", ARCHIVES)
def test_archives_not_to_be_trusted_are_refused(name: str) -> None:
    write, said = ARCHIVES[name]
    refuse(write(), said)


def change_state(change: Callable[[dict[str, Any]], object]) -> bytes:
    def replace(members: Members) -> None:
        state: dict[str, Any] = dict(load_state(members["policy.pth"]))
        change(state)
        members["policy.pth"] = save_state(state)

    return forge(replace)


STATES: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "nan": (lambda s: s["action_net.weight"].fill_(float("nan")), "NaN or infinite weights"),
    "infinite": (lambda s: s["action_net.bias"].fill_(float("inf")), "NaN or infinite weights"),
    "mountain": (lambda s: s.update({"action_net.weight": MOUNTAIN}), "its file does not hold"),
    "shared": (lambda s: s.update({f"log_std.{i}": BIG for i in range(100)}), "numbers in tensors that share"),
    "sparse": (lambda s: s.update({"log_std": torch.eye(3).to_sparse()}), "would load|is not a tensor|share"),
    "complex": (lambda s: s.update({"log_std": torch.ones(2, dtype=torch.complex64)}), "would load|real numbers"),
    "number": (lambda s: s.update({"log_std": 3}), "is not a tensor"),
    "rank": (lambda s: s.update({"action_net.weight": torch.ones(2, 8, 1)}), "which no Linear layer has"),
    "scalar": (lambda s: s.update({"action_net.weight": torch.tensor(1.0)}), "which no layer has"),
    "nothing": (lambda s: s.update({"action_net.weight": torch.ones(2, 0)}), "which no layer has"),
    "bias": (lambda s: s.update({"action_net.bias": torch.ones(7)}), "do not belong together"),
    "widths": (lambda s: s.update({"action_net.weight": torch.ones(2, 9)}), "cannot follow the shape"),
    "no_weights": (lambda s: s.pop("action_net.weight"), "no weights|without a portable form"),
    "cleared": (lambda s: s.clear(), "not a state dictionary"),
}  # fmt: skip
BIG, MOUNTAIN = torch.ones(2**20), torch.ones(1).expand(10**6, 10**6)


@pytest.mark.parametrize("name", STATES)
def test_absurd_weights_are_refused(name: str) -> None:
    change, said = STATES[name]
    refuse(change_state(change), said)


def test_torch_reads_the_members_that_were_checked() -> None:
    """Two zips in one file: `zipfile` finds the last, torch the first, by the place that the list of members names."""
    first, last = (
        write_members(read_members(save_state({"weight": torch.full((2, 2), value)}))) for value in (666.0, 1.0)
    )
    both = first[:-END_SIZE] + last
    assert load_state(both)["weight"][0, 0] == 666.0
    assert read_weights(both, "policy.pth")["weight"][0, 0] == 1.0


def test_a_member_that_lies_beyond_any_file_is_damaged() -> None:
    """The list of members has 64 bits for a place, and a seek fewer."""
    entry = struct.pack("<HHQ", 1, 8, 2**63 + 5)  # zip64, of the place alone
    whole = write_members({"data": b"{}"})
    start, end = whole.find(b"PK\x01\x02"), whole.find(END)
    listed = bytearray(whole[start:end])
    listed[30:32], listed[42:46] = struct.pack("<H", len(entry)), b"\xff" * 4
    last = bytearray(whole[end:])
    last[12:16] = struct.pack("<L", len(listed) + len(entry))
    with pytest.raises(PolicyError, match=r"damaged|not a zip"):
        open_archive(whole[:start] + bytes(listed) + entry + bytes(last), "x.zip", 2**20).read("data", 2**20)


def test_weights_without_bias_and_in_double_are_read() -> None:
    def change(state: dict[str, Any]) -> None:
        del state["action_net.bias"]
        state["action_net.weight"] = state["action_net.weight"].double()

    Path("agent.zip").write_bytes(change_state(change))
    layer = read_zip(Path("agent.zip"), normalization=None).policy.net.layers[-1]
    assert layer.weight.dtype == np.float32
    assert not layer.bias.any()


def test_stable_baselines_2_is_refused_by_name() -> None:
    old = {"data": b"{}", "parameters": b"PK", "parameter_list": b"[]"}
    assert "stable-baselines 2" in refuse(write_members(old))
    for protocol in range(6):
        Path("agent.pkl").write_bytes(pickle.dumps(({"gamma": 0.99}, [np.ones(3)]), protocol))
        with pytest.raises(PolicyError, match=r"agent\.pkl: a bare pickle, as stable-baselines 2"):
            read_zip(Path("agent.pkl"), normalization=None)


def test_links_and_other_things_are_not_followed() -> None:
    Path("agent.zip").write_bytes(forge())
    Path("agent").mkdir()
    Path("secret").write_text("normalize: false")
    Path("agent/config.yml").symlink_to(Path("secret").absolute())
    with pytest.raises(PolicyError, match=r"config\.yml: a link"):
        read_zip(Path("agent.zip"))
    Path("agent/config.yml").unlink()
    Path("agent/vecnormalize.pkl").symlink_to("/dev/zero")
    with pytest.raises(PolicyError, match=r"vecnormalize\.pkl: a link"):
        read_zip(Path("agent.zip"))
    os.mkfifo("pipe.zip")
    for name, said in (
        ("pipe.zip", "not a regular file"),
        ("agent", "not a regular file"),
        ("/dev/zero", "not a regular file"),
        ("absent.zip", "No such file or directory; check the path"),
        ("a\0b.zip", "no path"),
    ):
        with pytest.raises(PolicyError, match=said) as caught:
            read_zip(Path(name), normalization=None)
        check_line(caught.value)
    Path("link.zip").symlink_to("agent.zip")  # what the user names may be a link, as in the hub's cache
    assert read_zip(Path("link.zip"), normalization=None).algo == "ppo"


def try_zip(data: bytes) -> None:
    """Read or refused, never anything else."""
    path = Path("fuzzed.zip")
    path.write_bytes(data)
    said = ""
    try:
        read_zip(path, normalization=None)
    except PolicyError as error:
        said = str(error)
    assert "\n" not in said
    assert not Path(CANARY).exists()


PLACES = st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.binary(min_size=1, max_size=4)), max_size=6)


def splice(data: bytes, places: list[tuple[float, bytes]]) -> bytes:
    changed = bytearray(data)
    for share, patch in places:
        start = int(share * len(changed))
        changed[start : start + len(patch)] = patch
    return bytes(changed)


@draw_examples(150)
@given(PLACES, st.floats(0.5, 1))
def test_any_bytes_of_a_zip(places: list[tuple[float, bytes]], kept: float) -> None:
    whole = splice(forge(), places)
    try_zip(whole[: int(kept * len(whole))] if kept < 0.9 else whole)


@draw_examples(150)
@given(PLACES)
def test_any_bytes_of_the_weights(places: list[tuple[float, bytes]]) -> None:
    """The checksum of the zip around them is right."""
    try_zip(forge(lambda members: members.update({"policy.pth": splice(members["policy.pth"], places)})))


@draw_examples(100)
@given(PLACES)
def test_any_bytes_of_the_pickle_in_the_weights(places: list[tuple[float, bytes]]) -> None:
    def change(members: Members) -> None:
        with zipfile.ZipFile(io.BytesIO(members["policy.pth"])) as inner:
            pickled = inner.read(next(name for name in inner.namelist() if name.endswith("data.pkl")))
        members["policy.pth"] = replace_pickle(members["policy.pth"], splice(pickled, places))

    try_zip(forge(change))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.just("[1e999]"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip
KEYS = st.sampled_from(
    ["policy_class", "policy_kwargs", "observation_space", "action_space", "n_epochs", "policy_delay"]
)
FIELDS = st.sampled_from(["_shape", "shape", "low", "high", "dtype", ":type:", "n", "start", "__module__", "clip_mean"])


@draw_examples(150)
@given(st.dictionaries(KEYS, JSON | st.dictionaries(FIELDS, JSON, max_size=3), max_size=4))
def test_any_json(changes: dict[str, Any]) -> None:
    try_zip(forge(**changes))


@draw_examples(150)
@given(st.binary(max_size=60) | PLACES)
def test_any_statistics(what: Any) -> None:
    path = Path("fuzzed.pkl")
    path.write_bytes(what if isinstance(what, bytes) else splice(LIVE["numpy_runstring"], what))
    with pytest.raises(PolicyError):
        read_statistics(path)
    assert not Path(CANARY).exists()


def test_torch_alone_would_fill_the_memory() -> None:
    """Why the pickle is read before torch reads it: weights_only still allocates what a call asks for."""
    data = replace_pickle(dict(saved_members())["policy.pth"], b"\x80\x02cbuiltins\nbytearray\n(M\xe8\x03tR.")
    assert torch.load(io.BytesIO(data), weights_only=True) == bytearray(1000)
    with pytest.raises(PolicyError, match=r"would load 'builtins\.bytearray'"):
        read_weights(data, "policy.pth")
