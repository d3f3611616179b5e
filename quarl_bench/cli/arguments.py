"""What several commands take: their frame, a policy, and numbers."""

import argparse
import json
import math
import os
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

from quarl_bench.cli.commands import COMMANDS
from quarl_bench.system.counts import read_positive

EXIT_CODES = "exit codes: 0 done, 2 wrong input (one line on stderr), 130 interrupted"
WIDEST = 32
TASK = ("algo", "normalization", "arch", "environment", "env_kwargs")  # what says which policy and task is meant


def new_command(
    commands: Any,
    name: str,
    run: Callable[[argparse.Namespace], int],
    example: str,
    codes: str = EXIT_CODES,
) -> argparse.ArgumentParser:
    """A command of the registry with `--json`, an example and the exit codes."""
    about = COMMANDS[name].help
    command: argparse.ArgumentParser = commands.add_parser(
        name,
        help=about,
        description=about,
        epilog=f"example: {example}\n\n{codes}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.add_argument("--json", action="store_true", help="print one JSON object instead of text. Default: text.")
    command.set_defaults(run=run, parser=command)
    return command


def add_policy(command: argparse.ArgumentParser) -> None:
    """The argument POLICY, and what its file may leave open."""
    command.add_argument(
        "policy",
        type=read_path,
        help="folder with policy.safetensors and manifest.json, name of a baseline, .zip of stable-baselines3 or a "
        "folder of one as in rl-baselines3-zoo, or one of the Hugging Face hub: "
        "hub:OWNER/REPOSITORY[/FILE.zip][@REVISION]; with --environment also an .onnx, .pt2 or TorchScript file, a "
        "torch module, module:attribute, or a state dictionary with --arch",
    )
    command.add_argument("--algo", help="algorithm of a .zip, for example ppo. Default: what the file says.")
    command.add_argument(
        "--normalization", metavar="FILE",
        help="saved VecNormalize, or `none` for raw observations. Default: of a .zip, what the folder beside it says, "
        "agent/config.yml and agent/vecnormalize.pkl of agent.zip; else none.",
    )  # fmt: skip
    command.add_argument(
        "--arch", metavar="CHAIN",
        help="modules and activations of a state dictionary, as fc1,relu,fc2 or conv1/4,relu,fc1 (stride 4), or a "
        "preset: cleanrl-ppo, -ppo-continuous, -ppo-atari, -dqn, -dqn-atari, -ddpg, -td3, -sac; of a checkpoint of "
        "rsl_rl, rl_games or skrl its activation alone, as elu; of an .onnx file the output that is the action, or "
        "`means` where SDs stand behind the means. Default: none.",
    )  # fmt: skip


def add_task(command: argparse.ArgumentParser) -> None:
    """POLICY and `--environment`, for commands that play."""
    add_policy(command)
    command.add_argument(
        "--environment", help="name, Gymnasium id, or module:name of your own environment. Default: the policy's own."
    )
    command.add_argument(
        "--env-kwargs", type=read_kwargs, metavar="JSON",
        help="arguments that the environment is made with, as '{\"gravity\": 5.0}'. Default: nothing.",
    )  # fmt: skip


def add_engine(command: argparse._ActionsContainer) -> None:
    """The cluster on which it runs."""
    command.add_argument(
        "--address", help="address of a Ray cluster to run on, HOST:PORT. Default: this machine alone."
    )


def add_workers(command: argparse.ArgumentParser) -> None:
    """How much of this machine it takes, where it runs here."""
    command.add_argument("--workers", type=read_positive, default=os.cpu_count() or 1, metavar="N",
                         help="cores of this machine to use. Default: all.")  # fmt: skip


def name_command(name: str, options: argparse.Namespace, scheme: str) -> str:
    """Another command on the same policy and task, as a shell takes it."""
    words = ["quarl", name, str(options.policy)]
    for option in TASK:
        value = getattr(options, option)
        if value is not None:
            words += [f"--{option.replace('_', '-')}", json.dumps(value) if isinstance(value, dict) else str(value)]
    return shlex.join([*words, "--scheme", scheme, "--output", "repaired"])


def add_integers(command: argparse.ArgumentParser) -> None:
    """POLICY, `--environment` and a `--scheme` of integers, for commands that run nothing else."""
    add_task(command)
    command.add_argument(
        "--scheme",
        help="for fp32 policies: int<bits>, or i<bits>c<bits>o<bits>ptq. Default: int8; integer policies keep theirs.",
    )


def read_path(text: str) -> Path:
    """A path; argparse reports an empty one, which would be the current folder."""
    if not text:
        raise argparse.ArgumentTypeError("an empty name; name a file or a folder")
    return Path(text)


def read_kwargs(text: str) -> dict[str, Any]:
    """A JSON object; argparse reports anything else."""
    try:
        given = json.loads(text)
    except ValueError:
        given = None
    if not isinstance(given, dict):
        raise argparse.ArgumentTypeError(f"{text!r} is no JSON object, as '{{\"gravity\": 5.0}}'")
    return given


def read_bits(text: str) -> tuple[int, ...]:
    """Bit widths, widest first: `2..8`, `8`, or `2,4,8`."""
    spans = [re.fullmatch(r"([0-9]{1,2})(?:\.\.([0-9]{1,2}))?", part) for part in text.split(",")]
    widths = {bits for span in spans if span is not None for bits in range(int(span[1]), int(span[2] or span[1]) + 1)}
    if None in spans or not widths or min(widths) < 2 or max(widths) > WIDEST:
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of bit widths from 2 to {WIDEST}, as 2..8 or 2,4,8")
    return tuple(sorted(widths, reverse=True))


def read_seeds(text: str) -> tuple[int, ...]:
    """Training seeds in ascending order: `0..9`, `3`, or `0,1,2`."""
    spans = [re.fullmatch(r"([0-9]{1,6})(?:\.\.([0-9]{1,6}))?", part) for part in text.split(",")]
    seeds = [seed for span in spans if span is not None for seed in range(int(span[1]), int(span[2] or span[1]) + 1)]
    if None in spans or not seeds or len(set(seeds)) != len(seeds):
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of different seeds, as 0..9 or 0,1,2")
    return tuple(sorted(seeds))


def read_clock(text: str) -> float:
    """Megahertz from 1 to 1000, written `100MHz` or `100`; argparse reports anything else."""
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*(?:MHz)?", text, re.IGNORECASE)
    if match is None or not 1 <= float(match[1]) <= 1000:
        raise argparse.ArgumentTypeError(f"{text!r} is no clock of 1 to 1000 MHz, as 100MHz")
    return float(match[1])


def read_share(text: str) -> float:
    """A share of 0 or more and below 1, such as 0.1; argparse reports anything else, NaN too."""
    try:
        share = float(text)
    except ValueError:
        share = math.nan
    if not 0 <= share < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no share from 0 to below 1, as 0.1")
    return share
