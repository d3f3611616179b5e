"""`quarl actorq`: quantized actors, a full-precision learner, on Ray; lists of options are swept."""

import argparse
import itertools
import os
import signal
import sys
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quarl_bench.cli.arguments import add_engine, new_command, read_path, read_seeds
from quarl_bench.cli.opening import name_task
from quarl_bench.cli.printing import print_result, say
from quarl_bench.cli.stopping import STOPPING, listen_for_stop
from quarl_bench.errors import SpecError
from quarl_bench.system.atomic import open_file, open_folder
from quarl_bench.system.counts import MOST_STEPS, read_episodes, read_positive
from quarl_bench.system.extras import expect, needing
from quarl_bench.views.text import format_table

if TYPE_CHECKING:
    from quarl_bench.actorq.comparison import RunComparison
    from quarl_bench.actorq.record import Record
    from quarl_bench.actorq.settings import RunSettings

SWEPT = ("seed", "update_period", "actors", "precision")  # precisions side by side: a machine's load drifts


def add_command(commands: Any) -> None:
    """Add `quarl actorq`: lists of precisions, actors, periods and seeds, and the settings that all runs share."""
    command = new_command(commands, "actorq", run,
        "quarl actorq dqn cartpole --precision fp32,fp16,int8 --output runs", STOPPING)  # fmt: skip
    command.add_argument("algo", help="dqn or d4pg; a2c with --behaviour-log-probs")
    command.add_argument("environment", help="environment, for example cartpole, CartPole-v1 or walker-walk")
    command.add_argument(
        "--output", type=read_path, help="folder of the runs' folders; not of --calibrate. Default: none."
    )
    command.add_argument(
        "--calibrate", type=read_positive, metavar="SECONDS",
        help="train each combination for so many seconds, keep nothing, and print how long it would take, and whether "
        "its actors decide that. Default: train.",
    )  # fmt: skip
    swept = command.add_argument_group("what is swept: a list makes a run of every combination")
    swept.add_argument("--precision", type=_read_words, default=("int8",), metavar="LIST",
                       help="precisions of the actors: fp32, fp16, int8. Default: int8.")  # fmt: skip
    swept.add_argument(
        "--actors", type=_read_numbers, default=(1,), metavar="LIST", help="numbers of actors. Default: 1."
    )
    swept.add_argument("--update-period", type=_read_numbers, default=(None,), metavar="LIST",
                       help="steps of an actor between two pulls of the weights. Default: the recipe's.")  # fmt: skip
    swept.add_argument(
        "--seeds", type=read_seeds, default=(0,), metavar="LIST", help="training seeds, as 0..2. Default: 0."
    )
    learning = command.add_argument_group("learning")
    learning.add_argument("--widths", type=_read_numbers, metavar="LIST",
                          help="widths of the hidden layers, as 2048,2048,2048. Default: the recipe's.")  # fmt: skip
    learning.add_argument("--steps", type=partial(read_positive, most=MOST_STEPS),
                          help="environment steps of all actors together. Default: the recipe's.")  # fmt: skip
    learning.add_argument("--batch", type=read_positive, help="transitions per update. Default: the recipe's.")
    learning.add_argument("--n-step", type=read_positive, metavar="N",
                          help="steps of the n-step return. Default: the recipe's.")  # fmt: skip
    learning.add_argument("--samples-per-insert", type=float, metavar="X",
                          help="transitions sampled per transition inserted. Default: the recipe's.")  # fmt: skip
    learning.add_argument("--warmup", type=read_positive, metavar="N",
                          help="random transitions before learning starts. Default: the recipe's.")  # fmt: skip
    learning.add_argument("--rate", type=float, help="learning rate of Adam. Default: the recipe's.")
    learning.add_argument("--behaviour-log-probs", action="store_true",
                          help="actors state the probability of what they did, and the learner corrects for it "
                          "(V-trace), as on-policy algorithms need. Default: not.")  # fmt: skip
    learning.add_argument("--learner-precision", help="fp32, or bf16 autocast. Default: fp32.")
    learning.add_argument("--device", help="the learner's: cpu, or cuda, a GPU. Actors are on CPUs. Default: cpu.")
    shipping = command.add_argument_group("weights")
    shipping.add_argument("--communication", help="precision in which weights are sent. Default: the actors'.")
    shipping.add_argument(
        "--compress", action="store_true", help="compress weights with zstd before sending. Default: not."
    )
    shipping.add_argument(
        "--delta", action="store_true",
        help="send what changed since the last whole message, one in ten, compressed with zstd; exact. Default: not.",
    )  # fmt: skip
    shipping.add_argument("--publish-period", type=read_positive, metavar="N",
                          help="updates between two broadcasts. Default: the recipe's.")  # fmt: skip
    shipping.add_argument("--runtime", help="what actors infer with: c, litert, torch. Default: c.")
    engine = command.add_argument_group("engine")
    add_engine(engine)
    engine.add_argument(
        "--actor-resource", metavar="NAME",
        help="resource of Ray of which every actor takes one, so that actors play on nodes that were started with "
        "`ray start --resources='{\"NAME\": 8}'`. Default: on every node with a free core.",
    )  # fmt: skip
    engine.add_argument(
        "--object-store",
        type=read_positive,
        metavar="MB",
        help="memory of the object store of a local Ray. Default: Ray's own.",
    )
    engine.add_argument("--pin", action="store_true",
                        help="learner on the first core, actors on the others. Default: not.")  # fmt: skip
    engine.add_argument(
        "--resume", action="store_true", help="go on from checkpoints; finished runs are kept. Default: not."
    )
    engine.add_argument("--save-every", type=read_positive, metavar="SECONDS",
                        help="seconds between two checkpoints. Default: 60.")  # fmt: skip
    engine.add_argument("--points", type=read_positive, default=20, metavar="N",
                        help="points of the learning curve. Default: 20.")  # fmt: skip
    engine.add_argument("--episodes", type=read_episodes, default=20, metavar="N",
                        help="episodes per point of the curve, played after the run. Default: 20.")  # fmt: skip
    engine.add_argument("--test-episodes", type=read_episodes, default=100, metavar="N",
                        help="episodes that score the best policy, played after the run. Default: 100.")  # fmt: skip
    engine.add_argument(
        "--plot", type=read_path, metavar="FILE", help="PNG of what an actor's time is spent on. Default: none."
    )
    engine.add_argument(
        "--curves",
        type=read_path,
        metavar="FILE",
        help="PNG of returns against seconds, a curve for each precision, with a band over seeds. Default: none.",
    )


def run(options: argparse.Namespace) -> int:
    """Train every combination, one after the other, and print what they cost."""
    from quarl_bench.actorq.comparison import compare_runs

    with needing("actorq", "ActorQ"):
        import quarl_bench.training.sb3.run  # noqa: F401

    if (options.output is None) == (options.calibrate is None):
        raise SpecError("name a folder by --output, or a number of seconds by --calibrate, and not both")
    options.environment = name_task(options.environment)
    runs = _list_settings(options)
    if options.calibrate is not None:
        return _calibrate(options, runs)
    pictures = [path for path in (options.plot, options.curves) if path is not None]
    if pictures:
        expect("report", "a figure", "matplotlib")
    open_folder(options.output)
    for picture in pictures:
        open_file(picture, ".png")
    records = [_train(options, settings) for settings in runs]
    rows = compare_runs(records)
    if options.plot:
        _plot(options.plot, rows)
    if options.curves:
        _plot_curves(options.curves, records)
    print_result(options, {"runs": records}, _describe(rows))
    return 0


def _calibrate(options: argparse.Namespace, runs: "list[RunSettings]") -> int:
    from quarl_bench.actorq.prediction import calibrate, list_predictions, name_run
    from quarl_bench.actorq.scaling import NODE, Site, list_estimates
    from quarl_bench.actorq.training import RunOptions
    from quarl_bench.system.bars import collect

    found = collect(
        (
            calibrate(settings, options.calibrate, RunOptions(options.address, resource=options.actor_resource))
            for settings in runs
        ),
        len(runs),
        "runs",
        lambda one: one.settings.name,
    )
    fields = ("acting", "learning", "quantized", "seconds", "share", "ceiling", "measured", "cores")
    told = [{"settings": one.settings.as_dict()} | {name: getattr(one, name) for name in fields} for one in found]
    for entry, one in zip(told, found, strict=True):
        entry["costs"] = None if one.costs is None else asdict(one.costs)
    costs = [(name_run(one.settings), one.costs) for one in found if one.costs is not None]
    paper = format_table(list_estimates(costs, Site()))
    note = (
        f"predicted from {options.calibrate} s each on {os.cpu_count()} cores; `actors' share`: of the run's time in "
        "which they work; `ceiling`: a precision that takes no time (Amdahl); `on paper`: from CPU time, if every "
        f"actor had a core, {NODE} a node, and the learner's node 10 Gbit/s; `of one learner`: how busy it then is"
    )
    print_result(
        options, {"predictions": told}, "\n".join([*format_table(list_predictions(found)), "", *paper, "", note])
    )
    return 0


def _list_settings(options: argparse.Namespace) -> "list[RunSettings]":
    """All combinations; SpecError before anything runs."""
    from quarl_bench.actorq.acting.task import open_task
    from quarl_bench.actorq.settings import choose_settings

    fixed = {
        name: getattr(options, name)
        for name in ("widths", "steps", "batch", "n_step", "samples_per_insert", "warmup", "rate",
                     "learner_precision", "device", "communication", "publish_period", "runtime")
    } | {
        "compress": options.compress,
        "delta": options.delta,
        "log_probs": options.behaviour_log_probs,
        "pin": options.pin,
        "points": options.points,
    }  # fmt: skip
    swept = (options.seeds, options.update_period, options.actors, options.precision)
    runs = [
        choose_settings(options.algo, options.environment, **fixed, **dict(zip(SWEPT, values, strict=True)))
        for values in itertools.product(*swept)
    ]
    open_task(runs[0])
    return runs


def _train(options: argparse.Namespace, settings: "RunSettings") -> dict[str, Any]:
    from quarl_bench.actorq.learning.learner import SAVE_SECONDS
    from quarl_bench.actorq.record import RECORD, read_record
    from quarl_bench.actorq.training import RunOptions, train
    from quarl_bench.system.machine import describe_machine, read_own_commit

    folder = options.output / f"{settings.name}-a{settings.actors}-u{settings.update_period}"
    if (folder / RECORD).exists():
        if not options.resume:
            raise SpecError(f"{folder} holds a finished run; pass --resume to keep it, or another --output")
        record = read_record(folder)
        if record["settings"] != settings.as_dict():
            raise SpecError(f"{folder} holds a run with other options; choose another --output")
        return record
    return train(
        settings,
        folder,
        RunOptions(
            address=options.address,
            store=None if options.object_store is None else options.object_store << 20,
            resource=options.actor_resource,
            save_seconds=options.save_every or SAVE_SECONDS,
            resume=options.resume,
            progress=sys.stderr.isatty(),
            validation=options.episodes,
            test=options.test_episodes,
            should_stop=listen_for_stop(signal.SIGTERM, signal.SIGINT),
            note=say,
            metadata={"machine": describe_machine(), "commit": read_own_commit()},
        ),
    )


def _describe(rows: "list[RunComparison]") -> str:
    from quarl_bench.actorq.comparison import list_breakdown, list_summary

    loads = [row.record["load"] for row in rows]
    gpus = sorted({row.record["gpu"] for row in rows if row.record.get("gpu")})
    lines = [*format_table(list_summary(rows)), "", *format_table(list_breakdown(rows)), ""]
    lines.append(
        f"measured on {os.cpu_count()} cores{''.join(f' and {gpu}' for gpu in gpus)} under a load of {min(loads):.1f} "
        f"to {max(loads):.1f}; `ceiling`: actors "
        "that infer and load in no time (Amdahl); `loop`: CPU time of an actor's step without waiting"
    )
    return "\n".join(lines)


def _plot(path: Path, rows: "list[RunComparison]") -> None:
    from quarl_bench.actorq.comparison import name_run
    from quarl_bench.actorq.record import read_acting
    from quarl_bench.system.atomic import write_file

    with needing("report", "a figure"):
        from quarl_bench.report.page.kinds.breakdown import draw_breakdown
        from quarl_bench.report.page.plots import render_png

    bars = [(name_run(row), read_acting(row.record).per_step()) for row in rows]
    write_file(path, render_png(draw_breakdown(bars)))


def _plot_curves(path: Path, records: "list[Record]") -> None:
    from quarl_bench.actorq.comparison import group_seeds, list_curve
    from quarl_bench.system.atomic import write_file

    with needing("report", "a figure"):
        from quarl_bench.report.page.kinds.curves import LearningCurve, draw_curves
        from quarl_bench.report.page.plots import render_png

    groups = group_seeds(records)
    curves = [LearningCurve(name, [list_curve(run) for run in runs]) for name, runs in groups.items()]
    write_file(path, render_png(draw_curves(curves, "seconds")))


def _read_numbers(text: str) -> tuple[int, ...]:
    return tuple(read_positive(part) for part in text.split(","))


def _read_words(text: str) -> tuple[str, ...]:
    return tuple(text.split(","))
