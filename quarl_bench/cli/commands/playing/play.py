"""`quarl play`: watch a policy under several schemes, from the same start, side by side."""

import argparse
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quarl_bench.cli.arguments import add_task, new_command, read_path
from quarl_bench.cli.opening import find_integers, open_task, refuse_other_scheme, use_one_thread
from quarl_bench.cli.printing import print_result
from quarl_bench.system.bars import AT_MOST, open_bar
from quarl_bench.system.counts import read_natural, read_positive

if TYPE_CHECKING:
    from quarl_bench.environments.registry import Environment
    from quarl_bench.playing.scenes import Picture
    from quarl_bench.playing.stage import Panel
    from quarl_bench.policies.policy import Policy, PolicyNet
    from quarl_bench.quantization.scheme import Scheme

FRAMES_A_SECOND = 25.0  # of a video, at most; steps between are left out
SCHEMES = "fp32,int8"
WIDTH = 300
MOST_SCHEMES = 8
MOST_WIDTH, MOST_EPISODES = 2000, 100


def add_command(commands: Any) -> None:
    """Add `quarl play`: a policy, its schemes, and where they are shown."""
    command = new_command(commands, "play", run,
        "quarl play baselines/policies/dqn-lunarlander-seed0 --scheme fp32,int8,int3 --video landing.gif")  # fmt: skip
    add_task(command)
    command.add_argument(
        "--scheme", help="schemes in order, separated by commas. Default: fp32,int8; a policy of integers has its own."
    )
    command.add_argument(
        "--video", type=read_path, metavar="FILE", help="write a .gif or an .mp4 file. Default: show it in windows."
    )
    command.add_argument(
        "--render",
        choices=("human",),
        help="show it in windows, one per scheme. Default: human without --video, else none.",
    )
    command.add_argument("--seed", type=read_natural, help="environment seed. Default: the first that scores policies.")
    command.add_argument(
        "--episodes", type=lambda text: read_positive(text, MOST_EPISODES), default=1,
        help="episodes, one after the other, from this seed on. Default: 1.",
    )  # fmt: skip
    command.add_argument("--steps", type=read_positive, help="stop each episode after N steps. Default: at its end.")
    command.add_argument(
        "--width", type=lambda text: read_positive(text, MOST_WIDTH), default=WIDTH, metavar="PIXELS",
        help=f"width of each panel of the video. Default: {WIDTH}.",
    )  # fmt: skip


def run(options: argparse.Namespace) -> int:
    """Play the episodes, write or show them, and print their returns."""
    from quarl_bench.errors import SpecError
    from quarl_bench.evaluation.episode_bars import find_limit
    from quarl_bench.evaluation.protocol import TEST_SEEDS
    from quarl_bench.playing.frame import compose
    from quarl_bench.playing.scenes import ARRAY, WINDOW, check_mode, open_scenes
    from quarl_bench.playing.stage import play_side_by_side
    from quarl_bench.playing.video import check_suffix, load_writer

    if options.video is not None and options.render is not None:
        raise SpecError("--render shows and --video writes; leave out one of the two")
    if options.video is not None:
        check_suffix(options.video)
    schemes = read_schemes(options.scheme or SCHEMES)
    use_one_thread()
    integers = find_integers(options)
    if integers is None:
        stored, environment = open_task(options)
    else:
        refuse_other_scheme(options, integers[1])
        environment = integers[2]
    mode = WINDOW if options.video is None else ARRAY
    check_mode(environment, mode)  # before the calibration, which may take a minute
    if options.video is not None:
        load_writer(options.video)
    if integers is None:
        policies = quantize_all(stored.policy, schemes, environment)
    else:
        policies = [(integers[1], integers[0].policy)]
    first = TEST_SEEDS if options.seed is None else options.seed
    seeds = range(first, first + options.episodes)
    frames, ends = [], []
    for seed in seeds:
        masked = any(policy.head.masked for _, policy in policies)
        with closing(open_scenes(environment, [seed] * len(policies), mode, masked=masked)) as scenes:
            every = max(1, round(scenes.rate / FRAMES_A_SECOND))
            rate = scenes.rate / every
            shown = play_side_by_side(policies, scenes, every=every, most=options.steps)
            most = find_limit(environment) if options.steps is None else options.steps
            for panels in show_frames(shown, 1 + most // every, f"seed {seed}"):
                if options.video is not None:
                    frames.append(compose(panels, options.width))
            ends.append(panels)
    size = None if options.video is None else encode(options.video, frames, rate)
    result = {
        "environment": environment.id,
        "seeds": list(seeds),
        "schemes": [name for name, _ in policies],
        "returns": [[panel.gained for panel in end] for end in ends],
        "steps": [[panel.steps for panel in end] for end in ends],
        "video": None if size is None else {"file": str(options.video), "frames": len(frames), "bytes": size},
    }
    print_result(options, result, "\n".join(write_text(result)))
    return 0


def read_schemes(text: str) -> "list[Scheme]":
    """Different schemes, separated by commas; SpecError where they are too many, or one is named twice."""
    from quarl_bench.errors import SpecError
    from quarl_bench.quantization.scheme import Scheme

    schemes = [Scheme.parse(name) for name in text.split(",")]
    if len({scheme.name for scheme in schemes}) < len(schemes):
        raise SpecError(f"--scheme {text}: a scheme is named twice")
    if len(schemes) > MOST_SCHEMES:
        raise SpecError(f"--scheme {text}: {len(schemes)} schemes; at most {MOST_SCHEMES} fit side by side")
    return schemes


def quantize_all(
    policy: "PolicyNet", schemes: "Sequence[Scheme]", environment: "Environment"
) -> "list[tuple[str, Policy]]":
    """The policy under every scheme, by its name."""
    from quarl_bench.evaluation.episode_bars import show_calibration
    from quarl_bench.policies.policy import deployable

    ranged = any(scheme.integer and scheme.calibrated for scheme in schemes)
    states = show_calibration(policy, environment) if ranged else None
    return [
        (scheme.name, policy if scheme.name == "fp32" else deployable(policy.quantize(scheme, states)))
        for scheme in schemes
    ]


def show_frames(frames: "Iterator[tuple[Panel, ...]]", most: int, name: str) -> "Iterator[tuple[Panel, ...]]":
    """The same, counted on a terminal; there are `most` of them where no episode ends earlier."""
    with open_bar(most, "frames", name, bar_format=AT_MOST) as bar:
        for frame in frames:
            yield frame
            bar.update()


def encode(path: Path, frames: "Sequence[Picture]", rate: float) -> int:
    """What `write_video` gives, with a bar of the frames that are encoded."""
    from quarl_bench.playing.video import write_video

    with open_bar(len(frames), "frame", f"encoding {path.suffix}") as bar:
        return write_video(path, frames, rate, bar.update)


def write_text(result: dict[str, Any]) -> list[str]:
    """A line per episode and scheme, and what was written."""
    lines = [result["environment"]]
    for seed, returns, steps in zip(result["seeds"], result["returns"], result["steps"], strict=True):
        lines.append(f"  from environment seed {seed}:")
        lines += [
            f"    {name:<8}  return {gained:,.1f} in {count:,} steps"
            for name, gained, count in zip(result["schemes"], returns, steps, strict=True)
        ]
    if result["video"]:
        video = result["video"]
        lines.append(f"  {video['file']}: {video['frames']:,} frames, {video['bytes']:,} bytes")
    lines.append("  One start decides nothing: `quarl check` judges.")
    return lines
