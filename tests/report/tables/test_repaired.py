"""The table of repairs: made of records, which have to be of what stands below baselines."""

import json

import pytest

from quarl_bench.policies.storage.folder import load_stored
from quarl_bench.policies.storage.integers import load_integers
from quarl_bench.report.tables.repaired import count_repairs, list_few_bits, list_repairs, read_records
from tests.support.places import POLICIES

REPAIRED = POLICIES.parent / "repaired"
TEST = {"return": 90.0, "ratio": 0.9, "ratio_low": 0.85, "ratio_high": 0.94, "verdict": "refuted"}
RECORD = {
    "asked": "int8", "chosen": "int8pc+bias", "reference_return": 100.0, "episodes": 1000, "test_number": 3,
    "seconds": 7, "plain": {"return": 10.0, "bits": 8}, "test": TEST,
}  # fmt: skip


def test_a_row_says_what_was_tested(tmp_path):
    (tmp_path / "records.json").write_text(json.dumps({"dqn-pong-seed0-int8": RECORD}))
    lines = list_repairs(tmp_path)
    assert lines[0].startswith("Of 1 policies, 0 are supported, 0 not decided, 1 refuted. 0 keep 95%")
    assert lines[-1] == (
        "| dqn-pong-seed0-int8 | 100 | 10 | 90 | 90.0% [85.0%, 94.0%] | refuted | `int8pc+bias` | 3: 1,000 | 7 |"
    )


def test_few_bits_stand_beside_training(tmp_path):
    forms = {f"ppo-pong-seed{seed}-int4": RECORD | {"reference_return": 100.0 + seed} for seed in (0, 1, 2, 3)}
    (tmp_path / "records.json").write_text(json.dumps(forms | {"dqn-pong-seed0-int8": RECORD}))
    for seed, mean in ((0, 20.0), (1, 40.0), (3, 90.0)):  # 2 has no trained one, and not every cell has 3
        trained = tmp_path / "policies" / f"ppo-pong-qat4-seed{seed}"
        trained.mkdir(parents=True)
        (trained / "manifest.json").write_text(json.dumps({"return": {"mean": mean}}))
    lines = list_few_bits(tmp_path, tmp_path / "policies")
    assert lines[0].startswith(
        "| algorithm and environment | fp32 | 6 bits: plain | 6 bits: repaired | 6 bits: trained |"
    )
    assert lines[2:] == ["| ppo-pong | 100.5 |  |  |  | 10 | 90 | 30 |  |  |  |  |  |  |"]
    assert "ppo-pong" not in "".join(list_repairs(tmp_path))


def test_fewer_bits_and_four_bits_are_not_counted_as_eight():
    others = {"a": RECORD | {"asked": "int4"}, "b": RECORD | {"chosen": "int8w48+adaround"}, "c": RECORD}
    assert count_repairs(others).startswith("Of 1 policies")


@pytest.mark.skipif(not REPAIRED.exists(), reason=f"no repaired policies in {REPAIRED}")
def test_what_is_kept_came_from_the_policies_beside_it():
    folders = [path.parent for path in REPAIRED.glob("*/manifest.json")]
    assert folders
    for folder in folders:
        about = load_integers(folder).metadata["quantization"]
        source, _, bits = folder.name.rpartition("-")
        assert about["source_sha256"] == load_stored(POLICIES / source).sha256, folder.name
        assert about["repair"]["asked"] == bits
        assert about["repair"]["test_number"] > 1  # on episodes that no earlier search had played
    assert read_records(REPAIRED)
