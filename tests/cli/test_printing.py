"""Verdicts are coloured on a terminal, and nowhere else."""

import io

import pytest

from quarl_bench.cli import printing

LINES = "int8  100%  supported\nint2    8%  refuted by [markup] and :smile:\n" + "w" * 300


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch):
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")


@pytest.mark.needs("terminal")
def test_verdicts_are_coloured_on_a_terminal(monkeypatch):
    printing.print_text(LINES, shown := Terminal())
    assert "\x1b[32msupported\x1b[0m" in shown.getvalue()
    assert "\x1b[31mrefuted\x1b[0m by [markup] and :smile:" in shown.getvalue()
    assert "w" * 300 in shown.getvalue(), "no line is broken"
    monkeypatch.setenv("NO_COLOR", "1")
    printing.print_text(LINES, plain := Terminal())
    assert plain.getvalue() == f"{LINES}\n"


def test_a_file_has_no_colours(monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    printing.print_text(LINES, file := io.StringIO())
    assert file.getvalue() == f"{LINES}\n"


def test_without_the_extra_a_terminal_has_none_either(monkeypatch):
    monkeypatch.setattr(printing, "find_spec", lambda _: None)
    printing.print_text(LINES, shown := Terminal())
    assert shown.getvalue() == f"{LINES}\n"
