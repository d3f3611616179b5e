"""`quarl train`: one policy by its recipe."""

import argparse
import signal
import sys
from pathlib import Path
from typing import Any

from quarl_bench.cli.arguments import add_command as add
from quarl_bench.cli.arguments import read_natural
from quarl_bench.cli.printing import print_result, say
from quarl_bench.places import default_cache

STOPPED = 3


def add_command(commands: Any) -> None:
    """`train` and its options."""
    command = add(commands, "train", run, "Train one policy by its recipe.", "quarl train ppo cartpole --seed 0")
    command.add_argument("algo", help="algorithm, for example ppo")
    command.add_argument("environment", help="environment, for example cartpole")
    command.add_argument("--seed", type=read_natural, default=0, help="training seed. Default: 0.")
    command.add_argument("--origin", default="", help="control: the recipe's controlled variant. Default: none.")
    command.add_argument("--scheme", default="", help="qat8..qat2: train with the quantizer. Default: fp32.")
    command.add_argument(
        "--quant-delay", type=read_natural, metavar="STEPS", help="environment steps before it rounds. Default: half."
    )
    command.add_argument("--output", type=Path, help="folder to write. Default: the cache, where pytest finds it.")
    command.add_argument("--resume", action="store_true", help="go on from the last checkpoint. Default: start anew.")
    command.add_argument("--force", action="store_true", help="replace a policy that exists. Default: keep it.")


def run(options: argparse.Namespace) -> int:
    """Train, and say how well it plays."""
    from quarl_bench.errors import SpecError, StoreError
    from quarl_bench.rl.recipes import find_recipe
    from quarl_bench.rl.train import Interrupted, Options, train_policy
    from quarl_bench.spec import PolicySpec
    from quarl_bench.store import Places, Store, Train

    spec = PolicySpec(options.algo, options.environment, options.seed, options.origin, options.scheme)
    recipe = find_recipe(spec.algo, spec.environment, spec.origin, spec.scheme)
    if options.quant_delay is not None:
        if options.output is None or not spec.scheme:
            raise SpecError("--quant-delay: pass --scheme and --output too; the cache holds the recipes' own delays")
        recipe = recipe.train_aware(spec.scheme, options.quant_delay)
    stop: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stop.append(number))
    settings = Options(options.resume, progress=sys.stderr.isatty(), should_stop=lambda: bool(stop))
    try:
        if options.output is None:
            folder = None
            mode = Train.ALWAYS if options.force else Train.MISSING
            store = Store(
                Places(default_cache()),
                mode,
                trainer=lambda s, r, target, checkpoint: train_policy(s, r, target, checkpoint, settings),
                note=say,
            )
            stored = store.integers(spec) if spec.scheme else store.policy(spec)
        else:
            folder = options.output
            if folder.exists() and not options.force:
                raise StoreError(f"{folder} exists; pass --force to replace it, or another --output")
            checkpoint = folder.with_name(folder.name + ".checkpoint")
            stored = train_policy(spec, recipe, folder, checkpoint, settings)
    except Interrupted as reason:
        say(str(reason))
        return STOPPED
    score = stored.about["return"]
    published = stored.about["published"]
    result = {"policy": spec.name, "folder": None if folder is None else str(folder), "sha256": stored.sha256}
    text = f"{spec.name}: return {score['mean']:.1f} +- {score['sd']:.1f} over {score['episodes']} episodes"
    if published:
        spread = "" if published["sd"] is None else f" +- {published['sd']:g}"
        text += f"; published {published['mean']:g}{spread}"
    print_result(options, result | {"return": score, "published": published}, text)
    return 0
