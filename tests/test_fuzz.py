"""Files of users and strangers, mutated: each is read, or refused in one line, in no time.

Zips and pickles are fuzzed in test_hostile.py, fp32 policies in test_policy_files.py, claims in test_claim.py, scheme
names in test_scheme.py; here is the rest of what a command line or a test run reads.
"""

import copy
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from quarl_bench.backends.artefact import read_artefact
from quarl_bench.backends.deployed import load_artefact
from quarl_bench.backends.export import export_policy
from quarl_bench.backends.files import GOLDEN
from quarl_bench.errors import QuarlError
from quarl_bench.experiments.hub import parse_address
from quarl_bench.experiments.store import Store, StorePaths
from quarl_bench.policies.head import HeadKind
from quarl_bench.policies.sources.sb3.zoo_config import ARGS, CONFIG, Training, read_training
from quarl_bench.policies.storage.fp32 import MANIFEST
from quarl_bench.policies.storage.integers import load_integers, save_integers
from quarl_bench.quantization.scheme import Scheme
from quarl_bench.report.documents import read_document
from quarl_bench.report.page.html import render_report
from tests.support.documents import JSON, list_paths
from tests.support.rows import SWEEP, WEIGHTS, make_document
from tests.support.sizes import draw_examples
from tests.support.stores import MEASUREMENT
from tests.support.strategies import make_policy

fuzz = draw_examples(200, deadline=10_000, suppress_health_check=[HealthCheck.function_scoped_fixture])
STATES = np.random.default_rng(0).standard_normal((64, 4)).astype(np.float32)


def mutate(draw: Any, document: Any) -> Any:
    """`document` with up to three of its values replaced or gone, save those that would end the reading at once."""
    document = copy.deepcopy(document)
    for _ in range(draw(st.integers(1, 3))):
        paths = [path for path in list_paths(document) if not {"sha256", "schema_version", "key"} & set(path)]
        if not paths:
            break
        *parents, key = draw(st.sampled_from(paths))
        place = document
        for parent in parents:
            place = place[parent]
        if draw(st.booleans()):
            place[key] = draw(JSON)
        else:
            del place[key]
    return document


def read(reader: Any, *arguments: Any) -> Any:
    """What `reader` returns, or None where it refuses in one line."""
    said, found = "one line", None
    try:
        found = reader(*arguments)
    except QuarlError as error:
        said = str(error)
    assert len(said.splitlines()) == 1
    return found


@fuzz
@given(data=st.data())
def test_manifests_of_integers(tmp_path: Path, data: st.DataObject) -> None:
    """What loads must also act."""
    integers = make_policy(HeadKind.TANH, normalized=True).quantize(Scheme.parse("int8"), STATES).to_integer()
    save_integers(integers, tmp_path / "policy", {})
    path = tmp_path / "policy" / MANIFEST
    path.write_text(json.dumps(mutate(data.draw, json.loads(path.read_text()))))
    loaded = read(load_integers, path.parent)
    if loaded is not None:
        read(loaded.policy.act, STATES)


@pytest.mark.needs("litert")
@fuzz
@given(data=st.data())
def test_manifests_of_artefacts(tmp_path: Path, data: st.DataObject) -> None:
    folder = tmp_path / "artefact"
    if not (folder / "whole.json").exists():
        policy = make_policy().quantize(Scheme.parse("int8"), STATES).to_integer()
        export_policy(policy, folder, STATES, scheme="int8", source_sha256="0" * 64)
        (folder / MANIFEST).rename(folder / "whole.json")
    assert (folder / GOLDEN).exists()
    manifest = mutate(data.draw, json.loads((folder / "whole.json").read_text()))
    (folder / MANIFEST).write_text(json.dumps(manifest))
    if read(read_artefact, folder) is not None:
        read(load_artefact, folder)


KEYS = st.sampled_from(["algo", "env", "env_kwargs", "frame_stack", "env_wrapper", "normalize"])
TEXTS = st.dictionaries(KEYS, JSON, max_size=4).map(json.dumps) | st.text("{}[]&*:!<-,?|>%@ \n\taé01'\"", max_size=40)
TAGS = st.sampled_from(["", "!!python/tuple ", "!!python/object/apply:collections.OrderedDict\n", "!!python/name:os "])


@fuzz
@given(data=st.data())
def test_what_is_said_of_a_training(tmp_path: Path, data: st.DataObject) -> None:
    """As bytes, and as values of the keys that are read."""
    for name in (ARGS, CONFIG):
        (tmp_path / name).write_text(data.draw(TAGS) + data.draw(TEXTS))
    training = read(read_training, tmp_path)
    assert training is None or isinstance(training, Training)


DOCUMENTS = {document.kind: document.data for document in (make_document(), SWEEP, WEIGHTS)}


@draw_examples(60, fuzz)
@given(data=st.data())
@pytest.mark.parametrize("kind", DOCUMENTS)
def test_results(tmp_path: Path, kind: str, data: st.DataObject) -> None:
    path = tmp_path / "results.json"
    path.write_text(json.dumps(mutate(data.draw, DOCUMENTS[kind])))
    document = read(read_document, path)
    page = None if document is None else read(render_report, [document])
    assert page is None or page.startswith("<!DOCTYPE html>")


@fuzz
@given(data=st.data())
def test_a_damaged_measurement_is_made_again(tmp_path: Path, data: st.DataObject) -> None:
    """What the store accepts is as long as its lists of seeds and policies say."""
    for old in tmp_path.rglob("*.json"):
        old.unlink()
    Store(StorePaths(tmp_path)).measurement({"k": 1}, lambda: MEASUREMENT)
    (path,) = tmp_path.rglob("*.json")
    path.write_text(json.dumps(mutate(data.draw, json.loads(path.read_text()))))
    found = Store(StorePaths(tmp_path)).measurement({"k": 1}, lambda: MEASUREMENT)
    assert len(found.returns) == len(found.policies)


@fuzz
@given(
    st.text(max_size=9) | st.lists(st.sampled_from(["a", "/", "/b", "@", ".zip", "..", "-", " ", "\n"])).map("".join)
)
def test_addresses_on_the_hub(text: str) -> None:
    address = read(parse_address, f"hub:a/{text}")
    if address is not None:
        assert re.fullmatch(r"[\w.-]+/[\w.-]+", address.repository)
        assert address.text == f"hub:a/{text}"
