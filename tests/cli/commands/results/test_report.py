"""`quarl report`: a page of what other commands print."""


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
