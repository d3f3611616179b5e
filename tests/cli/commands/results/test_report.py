"""`quarl report`: a page of what other commands print."""

import json

from tests.support.rows import make_row


class TestReport:
    def test_a_page_of_what_the_commands_print(self, folder, quarl, quarl_json):
        (folder / "sweep.json").write_text(quarl("sweep", "policy", "--episodes", 3, "--bits", "4", "--json")[1])
        (folder / "weights.json").write_text(quarl("weights", "policy", "--json")[1])
        result = quarl_json("report", "sweep.json", "weights.json", "--output", "sub/page.html")
        page = (folder / "sub" / "page.html").read_text()
        assert (result["files"], result["bytes"]) == (2, len(page.encode()))
        assert page.count("<svg") == 2
        assert quarl("report", "sweep.json")[0] == 0
        assert (folder / "report.html").exists()

    def test_other_files(self, folder, quarl):
        (folder / "x.json").write_text("{")
        assert quarl("report", "x.json")[2].startswith("quarl report: x.json: not JSON")
        assert quarl("report", "none.json")[2].startswith("quarl report: none.json: No such file")
        assert not (folder / "report.html").exists()

    def test_results_without_rows(self, folder, quarl):
        skips = [{"nodeid": "t.py::t", "reason": "needs a board"}]
        (folder / "empty.json").write_text(json.dumps({"schema_version": 1, "rows": [], "skipped": skips}))
        for more in ((), ("--figures", "pictures")):
            code, _, told = quarl("report", "empty.json", *more)
            assert code == 2
            assert told.splitlines() == [
                "quarl report: empty.json: no rows: nothing was judged (1 skipped); name a run that judged something"
            ]
        assert not (folder / "report.html").exists()
        assert not (folder / "pictures").exists()

    def test_results_of_two_machines(self, folder, quarl):
        for name, scheme, cores in (("one", "w8", 2), ("two", "int8", 4)):
            results = {"schema_version": 1, "machine": {"processor": "EPYC", "cores": cores}, "skipped": []}
            (folder / f"{name}.json").write_text(json.dumps(results | {"rows": [make_row(scheme, 0.99, "supported")]}))
        for arguments in ((), ("merge",)):
            code, said, _ = quarl("report", *arguments, "one.json", "two.json")
            assert code == 0
            (note,) = [line for line in said.splitlines() if line.startswith("note:")]
            assert "measured on 2 machines: EPYC (2 cores), EPYC (4 cores)" in note
        assert "note:" not in quarl("report", "one.json")[1]
