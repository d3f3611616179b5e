"""`quarl weights`: statistics of weights, as text and as a file."""

import csv


class TestWeights:
    def test_statistics_as_text_json_csv_and_picture(self, folder, quarl, quarl_json):
        result = quarl_json("weights", "policy", "--bits", 3, "--output", "out")
        single, pooled = result["rows"]
        assert (single["name"], single["shape"], pooled["name"]) == ("layers.0.weight", "2x4", "all")
        assert (single["min"], single["max"], single["range"]) == (-1.0, 1.0, 2.0)
        assert single["levels"] <= 8
        assert sum(result["histograms"][0]["counts"]) == 8
        with (folder / "out" / "weights.csv").open() as stream:
            assert [row["name"] for row in csv.DictReader(stream)] == ["layers.0.weight", "all"]
        assert (folder / "out" / "weights.png").read_bytes().startswith(b"\x89PNG")
        code, out, _ = quarl("weights", "policy", "--scheme", "fp16")
        assert code == 0
        assert "before and after fp16" in out

    def test_wrong_widths_and_schemes(self, folder, quarl):
        assert quarl("weights", "policy", "--bits", 33)[2] == "quarl weights: --bits 33: it must be 2 to 32\n"
        assert quarl("weights", "policy", "--bits", 1)[0] == 2
        assert "under fp32, fp16 or w<bits>" in quarl("weights", "policy", "--scheme", "int8")[2]
        assert quarl("weights", "policy", "--scheme", "w8", "--bits", 8)[0] == 2
