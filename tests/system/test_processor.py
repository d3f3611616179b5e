"""What the kernel says of the processor, in the layouts of x86 and of Arm."""

import pytest

from quarl_bench.system import processor

X86 = "processor\t: 0\nvendor_id\t: GenuineIntel\nmodel name\t: Xeon: a name\nflags\t\t: sse avx\n\nprocessor\t: 1\n"
ARM = "processor\t: 0\nFeatures\t: fp asimd\n"


@pytest.mark.parametrize(
    ("text", "names", "value"),
    [
        (X86, ("vendor_id",), "GenuineIntel"),
        (X86, ("model name",), "Xeon: a name"),
        (X86, ("flags", "Features"), "sse avx"),
        (ARM, ("flags", "Features"), "fp asimd"),
        (ARM, ("model name",), ""),
        (None, ("flags",), ""),
    ],
)
def test_fields(monkeypatch, tmp_path, text, names, value):
    monkeypatch.setattr(processor, "DESCRIPTION", tmp_path / "cpuinfo")
    if text is not None:
        (tmp_path / "cpuinfo").write_text(text)
    assert processor.read_processor.__wrapped__(*names) == value


@pytest.mark.parametrize(
    ("instructions", "lacking"),
    [("sse avx512f", True), ("sse avx512_bf16", False), ("avx amx_bf16", False), ("asimd bf16", False), ("", False)],
)
def test_bf16(monkeypatch, instructions, lacking):
    monkeypatch.setattr(processor, "read_processor", lambda *_: instructions)
    assert processor.lacks_bf16() is lacking


@pytest.mark.parametrize(
    ("instructions", "listed"),
    [
        ("sse amx_int8 avx2 fma avx512_vnni", ["avx2", "fma", "avx512_vnni", "amx_int8"]),
        ("fp asimd", ["asimd"]),
        ("", []),
    ],
)
def test_what_speed_depends_on_is_named(monkeypatch, instructions, listed):
    monkeypatch.setattr(processor, "read_processor", lambda *_: instructions)
    assert processor.list_fast_instructions() == listed


def test_processors_of_one_name_are_told_apart(monkeypatch):
    told = {"model name": "A chip", "flags": "sse avx2 fma"}
    monkeypatch.setattr(processor, "read_processor", lambda name, *_: told.get(name, ""))
    assert processor.describe_processor() == "A chip (avx2 fma)"
    told.clear()
    assert processor.describe_processor() == "unknown"
