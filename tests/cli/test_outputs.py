"""No command writes over what it reads, over another output, or over a file of another kind."""

import json

import pytest

from tests.support.rows import make_document


@pytest.fixture
def inputs(folder):
    """Files and folders that commands read, or that stand in the way, with all that they hold."""
    (folder / "link").symlink_to(folder / "policy")
    (folder / "1.json").write_text(json.dumps(make_document().data))
    (folder / "2.json").write_text(json.dumps(make_document().data))
    (folder / "notes.txt").write_text("of another kind")
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("quantize", "policy", "--output", "link"), "--output link: it is read, and would be lost"),
        (("repair", "policy", "--output", "policy"), "--output policy: it is read, and would be lost"),
        (("check", "link", "--repair", "policy"), "--repair policy: it is read, and would be lost"),
        (("check", "policy", "--html", "notes.txt"), "notes.txt exists and is no .html file; it is left alone"),
        (("check", "policy", "--export", "new", "--repair", "./new"), "--export and --repair new: the same name twice"),
        (("check", "policy", "--export", ""), "argument --export: an empty name; name a file or a folder"),
        (("fpga", "policy", "--qonnx", "notes.txt"), "notes.txt exists and is no .onnx file; it is left alone"),
        (("report", "1.json", "--output", "1.json"), "--output 1.json: it is read, and would be lost"),
        (("report", "1.json", "--output", "2.json"), "2.json exists and is no .html file; it is left alone"),
        (("report", "merge", "1.json", "2.json", "--output", "2.json"), "--output 2.json: it is read"),
        (("report", "merge", "1.json", "--compare", "2.json", "--output", "2.json"), "--output 2.json: it is read"),
        (("report", "merge", "1.json", "--output", "notes.txt"), "notes.txt exists and is no .json file"),
        (("nightly", "--compare", "1.json", "--output", "1.json"), "--output 1.json: it is read"),
    ],
    ids=lambda given: "-".join(given) if isinstance(given, tuple) else "",
)
def test_nothing_is_lost(arguments, said, inputs, quarl):
    code, _, err = quarl(*arguments)
    assert (code, said in err, err.count("\n")) == (2, True, 1), err
    assert all(path.read_bytes() == content for path, content in inputs.items())


def test_a_merge_without_a_name_replaces_no_part(inputs, folder, quarl):
    """What it would be called is the name of a part."""
    (folder / "1.json").rename(folder / "results.json")
    code, _, err = quarl("report", "merge", "results.json", "2.json")
    assert (code, "--output results.json: it is read" in err) == (2, True)


def test_what_is_not_there_yet_or_of_its_kind_is_written(inputs, folder, quarl):
    (folder / "page.html").write_text("an older one")
    for name in ("page.html", "new.page"):
        assert quarl("report", "1.json", "--output", name)[0] == 0
        assert "<html" in (folder / name).read_text()[:200]
