"""The two pictures of docs/examples/robots: how long a robot stays upright, and how well it walks, against bits.

`python docs/scripts/robot_pictures.py` draws them from the committed starts. With ROBOTS behind it, it plays all starts
again first, and writes them down; ROBOTS has the folders `go1` and `g1` with the files that README.md names.
"""

import csv
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from quarl_bench.checking.subject import open_subject
from quarl_bench.report.page.plots import MARKERS, SERIES, open_panel, render_svg_file
from quarl_bench.system.atomic import write_file
from quarl_bench.system.imports import import_attribute

DOCS = Path(__file__).parents[1]
EXAMPLE = DOCS / "examples" / "robots"
STARTS = EXAMPLE / "starts.csv"
FIELDS = ("robot", "scheme", "seed", "upright_seconds", "return")
SEEDS = range(10_000, 10_010)
LONGEST, CONTROL = 10.0, 0.02  # seconds of an episode, and of a decision
BITS = {"w": (8, 7, 6, 5, 4, 3), "int": (8, 7, 6, 5, 4)}  # weights alone; weights and activations
FAMILIES = {"w": "weights", "int": "integers"}
FILES = {  # of each robot: its environment, its policy, its model
    "Go1": ("go1:Go1", "go1/go1_policy.onnx", "go1/scene_mjx_feetonly_flat_terrain.xml"),
    "G1": ("g1:G1", "g1/motion.pt", "g1/scene.xml"),
}


@dataclass(frozen=True)
class Start:
    """One episode: tracking is the return of a second upright, 1 where the robot keeps what it is told."""

    robot: str
    scheme: str
    seed: int
    upright: float
    total: float

    @property
    def tracking(self) -> float:
        """The return for each second upright."""
        return self.total / self.upright


def main(arguments: list[str]) -> None:
    """Draw both, and measure before where the robots' files are named."""
    if arguments:
        write_starts(measure(Path(arguments[0])))
    starts = read_starts()
    for name, label, end in (("upright", "upright, seconds of 10", LONGEST), ("tracking", "tracking, at most 1", 1.0)):
        figure, words = draw(starts, name, label, end)
        title = f"Two robots, {label}, against bits"
        write_file(DOCS / "pictures" / f"robots-{name}.svg", render_svg_file(figure, f"robots-{name}", title, words))


def measure(folder: Path) -> list[Start]:
    """Ten episodes of every robot in every scheme, each from the same starts."""
    sys.path.insert(0, str(EXAMPLE))
    schemes = ["fp32", *(f"{family}{bits}" for family in BITS for bits in BITS[family])]
    starts: list[Start] = []
    for robot, (kind, policy, model) in FILES.items():
        options = {"model": str((folder / model).absolute())}
        subject = open_subject(folder / policy, import_attribute(kind), env_kwargs=options)
        for scheme in schemes:
            played = subject.play(scheme, SEEDS)
            episodes = zip(SEEDS, played.lengths[0], played.returns[0], strict=True)
            starts += [Start(robot, scheme, seed, length * CONTROL, total) for seed, length, total in episodes]
    return starts


def write_starts(starts: list[Start]) -> None:
    """All of them as CSV."""
    rows = [",".join(FIELDS)]
    rows += [f"{one.robot},{one.scheme},{one.seed},{one.upright:.2f},{one.total:.4f}" for one in starts]
    write_file(STARTS, "\n".join(rows) + "\n")


def read_starts() -> list[Start]:
    """Those that are committed."""
    with STARTS.open(newline="") as stream:
        return [
            Start(row["robot"], row["scheme"], int(row["seed"]), float(row["upright_seconds"]), float(row["return"]))
            for row in csv.DictReader(stream)
        ]


def summarize(starts: list[Start], name: str) -> dict[tuple[str, str], float]:
    """The mean of `upright`, or of `tracking`, over the starts of each robot and scheme."""
    found: dict[tuple[str, str], list[float]] = {}
    for one in starts:
        found.setdefault((one.robot, one.scheme), []).append(getattr(one, name))
    return {key: float(np.mean(values)) for key, values in found.items()}


def draw(starts: list[Start], name: str, label: str, end: float) -> tuple[Figure, str]:
    """A line for each robot with rounded weights, and one for its integers; a dashed one for its fp32."""
    means = summarize(starts, name)
    told = []
    with open_panel(("bits", label), 3, 3.4) as (figure, axes):
        for place, robot in enumerate(FILES):
            axes.axhline(
                means[robot, "fp32"], color=SERIES[place], linestyle=(0, (4, 3)), linewidth=1, label=f"{robot}, fp32"
            )
            for style, (family, widths) in enumerate(BITS.items()):
                values = [means[robot, f"{family}{bits}"] for bits in widths]
                look = {"linestyle": ("-", ":")[style], "marker": MARKERS[2 * place + style]}
                axes.plot(widths, values, color=SERIES[place], label=f"{robot}, {FAMILIES[family]}", **look)
                said = ", ".join(f"{bits} bits {value:.3g}" for bits, value in zip(widths, values, strict=True))
                told.append(f"{robot}, {FAMILIES[family]}: {said}.")
        axes.set_ylim(0, 1.05 * end)
    return figure, " ".join(told)


if __name__ == "__main__":
    main(sys.argv[1:])
