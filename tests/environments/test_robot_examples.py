"""The robot of docs/examples/robots whose policy has a memory; its files, which are not ours, lie in ../shared."""

from typing import Any

import numpy as np
import pytest

from quarl_bench.checking.subject import Subject, open_subject
from quarl_bench.system.imports import import_attribute
from tests.support.places import ROOT

G1 = ROOT.parent / "shared" / "robots" / "g1"
pytestmark = pytest.mark.skipif(not G1.exists(), reason=f"the G1's files are not ours, and not in {G1}")


@pytest.fixture
def subject(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> Subject:
    monkeypatch.syspath_prepend(str(ROOT / "docs" / "examples" / "robots"))
    pytest.importorskip("mujoco", reason="needs the extra mujoco")
    kind = import_attribute("g1:G1")
    return open_subject(G1 / "motion.pt", kind, env_kwargs={"model": str(G1 / "scene.xml")})


def test_it_walks_in_eight_bits_of_weights_and_falls_in_four(subject: Subject) -> None:
    """As the facts beside its file say: ten seconds in fp32 and 8 bits, some two seconds in 4."""
    seeds = range(10_000, 10_002)
    walks, eight, four = (subject.play(scheme, seeds) for scheme in ("fp32", "w8", "w4"))
    assert walks.lengths == eight.lengths == ((500, 500),)
    assert np.mean(walks.returns) > 9
    assert np.mean(eight.returns) > 9
    assert max(four.lengths[0]) < 250
