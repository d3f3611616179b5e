"""A repair that is interrupted goes on, to the same integers, and nothing is kept that could be another repair's."""

import pytest
import torch

from quarl_bench.errors import StoreError
from quarl_bench.policies.policy import require_integer
from quarl_bench.policies.storage.integers import hash_integers
from quarl_bench.quantization.scheme import Scheme
from quarl_bench.repairing import distillation
from quarl_bench.repairing.distillation import distill
from quarl_bench.repairing.journal import NOTHING, open_journal
from tests.support.fragile import INT8, make_subject

WHAT = {"policy": "abc", "scheme": "int8"}


@pytest.fixture
def integers():
    return require_integer(make_subject().quantize(INT8))


def refuse():
    pytest.fail("made again")


def test_what_was_made_is_found_again(tmp_path, integers):
    with open_journal(tmp_path, WHAT, resume=False) as journal:
        made = journal.recall("int8+adaround", lambda: integers)
        assert hash_integers(made) == hash_integers(integers)
    with open_journal(tmp_path, WHAT, resume=True) as journal:
        assert hash_integers(journal.recall("int8+adaround", refuse)) == hash_integers(integers)
        assert journal.find("int8+distilled") is None
    with open_journal(tmp_path, WHAT | {"scheme": "int4"}, resume=True) as journal:
        assert journal.find("int8+adaround") is None
    with open_journal(tmp_path, WHAT, resume=False) as journal:
        assert journal.find("int8+adaround") is None


def test_what_a_disk_damages_is_made_again(tmp_path, integers):
    with open_journal(tmp_path, WHAT, resume=False) as journal:
        journal.recall("int8+adaround", lambda: integers)
        journal.save_point("int8", {"losses": [1.0], "tensor": torch.ones(3)})
        assert journal.load_point("int8")["losses"] == [1.0]
        for file in journal.folder.rglob("*"):
            if file.is_file():
                file.write_bytes(file.read_bytes()[:40])
        assert journal.load_point("int8") is None
        assert hash_integers(journal.recall("int8+adaround", lambda: integers)) == hash_integers(integers)


@pytest.mark.parametrize(
    "damage",
    [
        lambda whole: whole[:0],
        lambda whole: whole[:0] + b"garbage",
        lambda whole: whole[:40],
        lambda whole: whole[:-50],
        lambda whole: whole[1:],
        lambda whole: whole.replace(b"losses", b"lossez"),
        lambda whole: whole[:-1] + b"x",
    ],
    ids=["empty", "garbage", "beginning", "end cut", "first cut", "changed", "last changed"],
)
def test_no_damage_of_a_point_is_read(tmp_path, damage):
    with open_journal(tmp_path, WHAT, resume=False) as journal:
        journal.save_point("int8", {"losses": [1.0]})
        (file,) = journal.folder.iterdir()
        file.write_bytes(damage(file.read_bytes()))
        assert journal.load_point("int8") is None


def test_two_processes_do_not_share_one(tmp_path):
    with (
        open_journal(tmp_path, WHAT, resume=True),
        pytest.raises(StoreError, match=r"is in use by another process; wait$"),
        open_journal(tmp_path, WHAT, resume=True),
    ):
        pass


def test_without_a_folder_nothing_is_kept(integers):
    with open_journal(None, WHAT, resume=True) as journal:
        assert journal is NOTHING
        assert hash_integers(journal.recall("int8", lambda: integers)) == hash_integers(integers)
        journal.save_point("int8", {"losses": [1.0]})
        assert journal.load_point("int8") is None


class StoppedError(Exception):
    """A kill, as far as a test can be killed and go on."""


def test_a_distillation_goes_on_to_the_same_integers(tmp_path, monkeypatch):
    for name, value in {"STATES": 200, "VISITED": 200, "STEPS": 20, "LONGEST": 4}.items():
        monkeypatch.setattr(distillation, name, value)
    scheme, far = Scheme.parse("int8pc"), float("inf")
    whole = distill(make_subject(), scheme, 0, far)
    visit = distillation._Student.visit

    def stop_at_the_third(student, first_seed):
        if first_seed == distillation.SEEDS + 2000:
            raise StoppedError
        visit(student, first_seed)

    monkeypatch.setattr(distillation._Student, "visit", stop_at_the_third)
    with open_journal(tmp_path, WHAT, resume=False) as journal, pytest.raises(StoppedError):
        distill(make_subject(), scheme, 0, far, journal)
    monkeypatch.setattr(distillation._Student, "visit", visit)
    with open_journal(tmp_path, WHAT, resume=True) as journal:
        assert len(journal.load_point("int8pc")["losses"]) == 3  # two rounds are behind it
        resumed = distill(make_subject(), scheme, 0, far, journal)
    assert resumed.losses == whole.losses
    assert hash_integers(resumed.policy) == hash_integers(whole.policy)
