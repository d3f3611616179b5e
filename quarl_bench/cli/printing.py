"""What commands print, and the files they write."""

import argparse
import csv
import io
import json
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any, TextIO

from quarl_bench.spec import UNDECIDED

COLOURS = {"supported": "green", "refuted": "red", "DIFFERENT": "red"} | dict.fromkeys(UNDECIDED, "yellow")


def print_result(options: argparse.Namespace, result: dict[str, Any], text: str) -> None:
    """One JSON object under `--json`, else the text, its verdicts in colour on a terminal."""
    if options.json:
        print(json.dumps(result), file=options.stdout)
    else:
        print_text(text, options.stdout)


def announce(options: argparse.Namespace, lines: list[str]) -> list[str]:
    """The first `lines` of a text, told at once to who waits at a terminal; given back where the result comes whole."""
    if options.json or not options.stdout.isatty():
        return lines
    print_text("\n".join(lines), options.stdout)
    options.stdout.flush()
    return []


def print_text(text: str, stream: TextIO) -> None:
    """The text; on a terminal with the extra `terminal`, and without NO_COLOR, its verdicts are coloured."""
    if stream.isatty() and find_spec("rich") is not None:
        from rich.console import Console
        from rich.text import Text

        shown = Text(text)
        for word, colour in COLOURS.items():
            shown.highlight_regex(rf"\b{word}\b", colour)
        Console(file=stream, highlight=False).print(shown, soft_wrap=True)
    else:
        print(text, file=stream)


def say(line: str) -> None:
    """One line for the person at the terminal, beside the result."""
    print(line, file=sys.stderr)


def format_csv(rows: Sequence[dict[str, Any]]) -> str:
    """CSV with the keys of the first row as its header; None is an empty cell."""
    stream = io.StringIO()
    writer = csv.DictWriter(stream, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return stream.getvalue()
