"""`quarl select`: the smallest integer controller that matches fp32, by three steps (LQCC, section 3.2)."""

import argparse
import signal
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

from quarl_bench.cli.arguments import new_command, read_path, read_seeds
from quarl_bench.cli.emulation import warn_of_emulation
from quarl_bench.cli.opening import name_task
from quarl_bench.cli.printing import print_result, say
from quarl_bench.cli.stopping import STOPPING, listen_for_stop
from quarl_bench.errors import SpecError
from quarl_bench.system.counts import MOST_STEPS, read_natural, read_positive
from quarl_bench.system.extras import expect, needing
from quarl_bench.system.interruption import Interrupted

if TYPE_CHECKING:
    from quarl_bench.papers.registry import Paper

MOST_VALUES = 4096  # numbers of a list: nobody trains more


def add_command(commands: Any) -> None:
    """Add `quarl select`: seeds to train or the authors' runs to replay, and the bits and widths to search."""
    command = new_command(commands, "select", run,
        "quarl select sac hopperv4 --seeds 0..9 --output hopper", STOPPING)  # fmt: skip
    command.add_argument("algo", choices=("sac", "ddpg"))
    command.add_argument("environment", help="environment, for example hopperv4 or Hopper-v4")
    source = command.add_mutually_exclusive_group(required=True)
    source.add_argument("--seeds", type=read_seeds, metavar="LIST",
                        help="train these seeds, as 0..9, where missing. Default: none.")  # fmt: skip
    source.add_argument("--published", type=read_path, metavar="FOLDER",
                        help="replay the authors' runs, two CSV files. Default: none.")  # fmt: skip
    command.add_argument(
        "--output", type=read_path, help="folder of what is trained, and of the result. Default: none."
    )
    command.add_argument(
        "--steps", type=partial(read_positive, most=MOST_STEPS),
        help="environment steps per seed, with --seeds. Default: the recipe's.",
    )  # fmt: skip
    command.add_argument("--precision", choices=("fp32", "bf16"), default="fp32",
                         help="of training's matrix products, with --seeds. Default: fp32.")  # fmt: skip
    command.add_argument(
        "--workers", type=read_positive, default=1, metavar="N", help="threads to train with. Default: 1."
    )
    command.add_argument(
        "--two-sided",
        action="store_true",
        help="a return above the fp32 band counts as no match, too. Default: it counts as a match.",
    )
    command.add_argument(
        "--population", action="store_true", help="use the population's SD for the band. Default: the sample's."
    )
    command.add_argument(
        "--full", action="store_true", help="try every value of each step. Default: stop at the first match."
    )
    for name, what, values in (
        ("core", "core bits (weights and inner activations)", "2..8"),
        ("widths", "hidden widths", "16,32,64,128,256"),
        ("inputs", "input bits", "2..8"),
    ):
        told = f"{what} to try. Default: {values}."
        command.add_argument(f"--{name}", type=partial(_read_values, name), metavar="LIST", help=told)


def run(options: argparse.Namespace) -> int:
    """Select, and explain every decision."""
    from quarl_bench.papers.registry import list_providers

    with needing("sb3", "training"):
        import quarl_bench.training.sb3.run  # noqa: F401

    if options.output is not None:
        expect("report", "a figure", "matplotlib")
    options.environment = name_task(options.environment)
    paper = list_providers("selection")[0]
    rule = paper.open("parity").Parity(two_sided=options.two_sided, sample=not options.population)
    grid = {name: getattr(options, name) for name in ("core", "widths", "inputs") if getattr(options, name)}
    steps = paper.open("selection").list_steps(**grid)
    try:
        choose = _replay if options.published else _search
        selection, result = choose(paper, options, rule, steps)
    except Interrupted as reason:  # it names the option of `quarl train`
        raise Interrupted(f"{str(reason).partition(';')[0]}; the same command goes on") from reason
    if options.output is not None:
        _draw(paper, options, selection)
    print_result(options, result, "\n".join(selection.explain()))
    return 0


def _draw(paper: "Paper", options: argparse.Namespace, selection: Any) -> None:
    """Draw the steps of the selection as a PNG into the output folder, beside the result."""
    from quarl_bench.system.atomic import write_file

    with needing("report", "a figure"):
        from quarl_bench.report.page.kinds.multi_panel import PanelsView, draw_panels
        from quarl_bench.report.page.plots import render_png

    figures = paper.open("figures")
    source = figures.AUTHORS if options.published else figures.OURS
    panels = figures.show_selection(source, selection)
    view = PanelsView("", tuple(panel.as_dict() for panel in panels))
    drawing = draw_panels(view)
    what = f"{options.algo} on {options.environment}, {source}: {selection.configuration.scheme}"
    drawing.supxlabel(what, fontsize=9)  # above, it would lie on the legend
    path = paper.open("search").name_result(options.output, options.algo, options.environment)
    write_file(path.with_suffix(".png"), render_png(drawing))


def _replay(paper: "Paper", options: argparse.Namespace, rule: Any, steps: Any) -> tuple[Any, dict[str, Any]]:
    published, search, rules = (paper.open(module) for module in ("runs.published", "search", "selection"))
    if options.steps or options.precision != "fp32" or options.workers > 1:
        raise SpecError("--steps, --precision, --workers: published runs are trained; leave them out, or pass --seeds")
    names = (options.algo, options.environment)
    if options.output is not None and search.name_grid(options.output, *names).exists():
        raise SpecError(f"--output {options.output}: holds a search that trains; choose another folder")
    runs = published.read_published(options.published)
    if options.algo != "sac" or options.environment not in runs.fp32:
        raise SpecError(f"{options.published}: holds SAC on {', '.join(runs.fp32)}; choose one of them")
    find = partial(runs.find, options.environment)
    reference = runs.fp32[options.environment]
    selection = rules.select(reference, find, rule=rule, steps=steps, full=options.full)
    selection = rules.resample(selection, reference, find, steps)
    about = {"algo": options.algo, "environment": options.environment, "source": "published"}
    result = about | {"episodes": published.EPISODES} | search.describe(selection)
    if options.output is not None:
        search.write_result(search.name_result(options.output, *names), result)
    return selection, result


def _search(paper: "Paper", options: argparse.Namespace, rule: Any, steps: Any) -> tuple[Any, dict[str, Any]]:
    from quarl_bench.training.multi_seed.recipe import find_recipe
    from quarl_bench.training.sb3.run import TrainingOptions

    if options.output is None:
        raise SpecError("--seeds: pass --output, the folder of what is trained")
    recipe = find_recipe(options.algo).override(precision=options.precision)
    warn_of_emulation({recipe.precision})
    if options.steps:
        recipe = recipe.override(timesteps=options.steps)
    settings = TrainingOptions(
        resume=True, progress=sys.stderr.isatty(), should_stop=listen_for_stop(signal.SIGTERM), workers=options.workers
    )
    among = (options.environment, options.seeds, options.output, rule, steps, options.full)
    search = paper.open("search").Search(recipe, *among)
    selection = search.run(settings, say)
    return selection, search.describe(selection)


def _read_values(name: str, text: str) -> tuple[int, ...]:
    """Numbers as 2..8 or 16,32; what they may be is the rule's business."""
    values: set[int] = set()
    for part in text.split(","):
        first, dots, last = part.partition("..")
        begin, end = read_natural(first), read_natural(last if dots else first)
        if end - begin > MOST_VALUES:
            raise argparse.ArgumentTypeError(f"{text!r} names too many {name}")
        values |= {*range(begin, end + 1)}
    if not values:
        raise argparse.ArgumentTypeError(f"{text!r} names no {name}")
    return tuple(sorted(values))
