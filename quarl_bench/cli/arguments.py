"""What several commands take: their frame, a policy, and numbers."""

import argparse
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

EXIT_CODES = "exit codes: 0 done, 2 wrong input (one line on stderr), 3 stopped at a checkpoint, 130 interrupted"
WIDEST = 32


def add_command(
    commands: Any, name: str, run: Callable[[argparse.Namespace], int], help: str, example: str
) -> argparse.ArgumentParser:
    """A command with `--json`, an example and the exit codes."""
    command: argparse.ArgumentParser = commands.add_parser(
        name,
        help=help,
        description=help,
        epilog=f"example: {example}\n\n{EXIT_CODES}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.add_argument("--json", action="store_true", help="print one JSON object instead of text. Default: text.")
    command.set_defaults(run=run)
    return command


def add_policy(command: argparse.ArgumentParser) -> None:
    """The argument POLICY, and what its file may leave open."""
    command.add_argument(
        "policy",
        type=Path,
        help="folder with policy.safetensors and manifest.json, a .zip of stable-baselines3, or one of the Hugging "
        "Face hub: hub:OWNER/REPOSITORY[/FILE.zip][@REVISION]",
    )
    command.add_argument("--algo", help="algorithm of a .zip, for example ppo. Default: what the file says.")
    command.add_argument(
        "--normalization", metavar="FILE",
        help="saved VecNormalize of a .zip, or `none` for raw observations. Default: from the folder beside the .zip.",
    )  # fmt: skip


def add_environment(command: argparse.ArgumentParser) -> None:
    """`--environment`, for commands that play."""
    command.add_argument("--environment", help="environment name or Gymnasium id. Default: the policy's own.")


def read_natural(text: str) -> int:
    """A whole number of at least 0."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 0")
    return int(text)


def read_positive(text: str) -> int:
    """A whole number above 0."""
    number = read_natural(text)
    if number == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return number


def read_bits(text: str) -> tuple[int, ...]:
    """Bit widths, widest first: `2..8`, `8`, or `2,4,8`."""
    spans = [re.fullmatch(r"([0-9]{1,2})(?:\.\.([0-9]{1,2}))?", part) for part in text.split(",")]
    widths = {bits for span in spans if span is not None for bits in range(int(span[1]), int(span[2] or span[1]) + 1)}
    if None in spans or not widths or min(widths) < 2 or max(widths) > WIDEST:
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of bit widths from 2 to {WIDEST}, as 2..8 or 2,4,8")
    return tuple(sorted(widths, reverse=True))
