"""`quarl sweep`: the fewest bits, and what is kept of them."""

import csv
import signal
import time
from types import SimpleNamespace

import pytest

from quarl_bench.cli.arguments import read_bits
from quarl_bench.cli.commands.playing.sweep import conclude, find_limits, list_schemes
from quarl_bench.policies.storage.fp32 import load_policy
from quarl_bench.quantization.scheme import Scheme
from quarl_bench.spec import Outcome
from tests.support.commands import PROCESS
from tests.support.forks import Fork


class TestSweep:
    ARGUMENTS = ("sweep", "policy", "--episodes", 20)

    def test_every_width_is_measured_judged_and_drawn(self, folder, quarl, quarl_json):
        result = quarl_json(*self.ARGUMENTS, "--bits", "2..8", "--output", "out")
        names = [row["scheme"] for row in result["rows"]]
        assert names == ["fp32", "fp16", *(f"w{n}" for n in range(8, 1, -1)), *(f"int{n}" for n in range(8, 1, -1))]
        assert all(row["low"] <= row["return"] <= row["high"] for row in result["rows"])
        with (folder / "out" / "sweep.csv").open() as stream:
            table = list(csv.DictReader(stream))
        assert [row["scheme"] for row in table] == names
        assert float(table[0]["return"]) == 500.0
        assert (folder / "out" / "sweep.png").read_bytes().startswith(b"\x89PNG")
        code, out, err = quarl(*self.ARGUMENTS, "--bits", "8,3", "--family", "int")
        assert (code, err) == (0, "")
        assert [line.split()[0] for line in out.splitlines()[2:6]] == ["fp32", "fp16", "int8", "int3"]

    def test_measurements_are_those_of_evaluate_and_of_pytest(self, folder, quarl_json):
        from quarl_bench.evaluation.protocol import Protocol
        from quarl_bench.experiments.cells import Cells, PolicySet
        from quarl_bench.experiments.member import LazyPolicy
        from quarl_bench.experiments.store import Store, StorePaths
        from quarl_bench.spec import Case

        swept = quarl_json(*self.ARGUMENTS, "--bits", "4")
        alone = quarl_json("evaluate", "policy", "--scheme", "int4", "--episodes", 20)
        assert swept["rows"][-1]["return"] == alone["measured"]["mean"]
        assert swept["rows"][-1]["agreement"] == alone["measured"]["agreement"]
        stored = load_policy(folder / "policy")
        files = sorted((folder / "cache").rglob("*.json"))
        cells = Cells(Store(StorePaths(folder / "cache")), Protocol(1, 20), folder)
        member = LazyPolicy(stored, lambda: pytest.fail("it was measured already"))
        cells.measure(PolicySet(Case("ppo", "cartpole", "int4"), (member,)))
        assert sorted((folder / "cache").rglob("*.json")) == files

    def test_a_killed_sweep_goes_on(self, folder, quarl_json):
        arguments = ["sweep", "policy", "--bits", "2..12", "--family", "w", "--episodes", "400"]
        process = Fork(*PROCESS, *arguments)
        deadline = time.monotonic() + 60
        while len(list((folder / "cache").rglob("*.json"))) < 4 and time.monotonic() < deadline:
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
        kept = {path: path.stat().st_mtime_ns for path in (folder / "cache").rglob("*.json")}
        assert 4 <= len(kept) < 13
        result = quarl_json(*arguments)
        assert len(result["rows"]) == 13
        assert len(list((folder / "cache").rglob("*.json"))) == 13
        assert kept.items() <= {path: path.stat().st_mtime_ns for path in (folder / "cache").rglob("*.json")}.items()

    def test_the_fewest_bits_need_all_wider_ones_to_do(self):
        lines = [
            SimpleNamespace(scheme=Scheme.parse(name), verdict=SimpleNamespace(outcome=Outcome(outcome)))
            for name, outcome in [
                ("fp32", Outcome.SUPPORTED), ("fp16", Outcome.SUPPORTED), ("w16", Outcome.SUPPORTED),
                ("w8", Outcome.SUPPORTED), ("w4", Outcome.REFUTED), ("w3", Outcome.SUPPORTED),
                ("w2", Outcome.REFUTED), ("int8", Outcome.INCONCLUSIVE), ("int4", Outcome.SUPPORTED),
            ]
        ]  # fmt: skip
        assert find_limits(lines) == ({"w": 8, "int": None}, {"w": 4, "int": None})

    @pytest.mark.parametrize(
        ("outcomes", "fewest", "said"),
        [
            ({8: "supported", 4: "supported"}, 4, "int4 is the fewest that keeps it, as all wider ones do; none"),
            ({8: "supported", 4: "inconclusive", 3: "supported"}, 8, "; none loses it; int3 may owe it to chance"),
            ({8: "inconclusive", 4: "supported"}, None, "known to keep it (more episodes); none loses it; int4 may"),
        ],
        ids=["all", "a hole", "none"],
    )  # fmt: skip
    def test_what_may_be_chance_is_named(self, outcomes, fewest, said):
        rows = [
            {"family": "int", "scheme": f"int{bits}", "bits": bits, "verdict": outcome, "needed": "more episodes"}
            for bits, outcome in outcomes.items()
        ]
        assert said in conclude(rows, "int", fewest, None)

    def test_widths(self):
        assert read_bits("2..4,8") == (8, 4, 3, 2)
        assert [scheme.name for scheme in list_schemes((16, 8), None)] == ["fp32", "fp16", "w16", "w8", "int8"]

    @pytest.mark.parametrize("bits", ["1", "33", "8..2", "", "2...8", "2..8,x", "²"])
    def test_other_widths_are_refused(self, bits, quarl):
        code, _, err = quarl("sweep", "policy", "--bits", bits)
        assert code == 2
        assert "is not a list of bit widths from 2 to 32" in err


def test_a_cache_that_cannot_be_written_ends_in_one_line(folder, quarl, monkeypatch):
    (folder / "file").write_text("")
    monkeypatch.setenv("QUARL_CACHE_DIR", str(folder / "file" / "cache"))
    code, _, err = quarl("sweep", "policy", "--episodes", 2)
    assert code == 2
    assert err.startswith("quarl sweep: cannot write the cache")
