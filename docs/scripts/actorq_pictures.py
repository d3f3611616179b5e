"""The pictures of docs/actorq.md: what actors of each precision learn. `python docs/scripts/actorq_pictures.py`.

Drawn from the records in baselines/actorq.
"""

from pathlib import Path

from quarl_bench.actorq.comparison import group_seeds, list_curve
from quarl_bench.actorq.record import read_record
from quarl_bench.report.page.kinds.curves import LearningCurve, draw_curves
from quarl_bench.report.page.plots import render_svg_file
from quarl_bench.system.atomic import write_file

DOCS = Path(__file__).parents[1]
RECORDS = DOCS.parent / "baselines" / "actorq"
TASKS = {  # runs that learn: the pattern of their folders' names, and what the picture is called
    "dqn-cartpole": ("*-a1-*", "DQN on CartPole"),
    "d4pg-mountaincarcontinuous": ("*", "D4PG on MountainCarContinuous"),
    "a2c-cartpole": ("*", "A2C on CartPole, with recorded probabilities"),
    "d4pg-walkerwalkdmc": ("*-512-seed*-a1-*", "D4PG on walker walk"),
    "d4pg-cheetahrundmc": ("*-512-seed*-a1-*", "D4PG on cheetah run"),
}


def main() -> None:
    """Draw one for each task."""
    for task, (pattern, title) in TASKS.items():
        write_file(DOCS / "pictures" / f"actorq-{task}.svg", draw_task(task, pattern, title))


def draw_task(task: str, pattern: str, title: str) -> str:
    """The SVG of a task: return against seconds for each precision of its actors."""
    groups = group_seeds([read_record(folder) for folder in sorted(RECORDS.glob(f"{task}-{pattern}"))])
    curves = [LearningCurve(name, [list_curve(run) for run in runs]) for name, runs in groups.items()]
    words = f"Mean return against seconds, with its 90% interval over {len(curves[0].seeds)} seeds."
    return render_svg_file(draw_curves(curves, "seconds"), f"actorq-{task}", title, words)


if __name__ == "__main__":
    main()
