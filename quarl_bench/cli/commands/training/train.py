"""`quarl train`: one policy by its recipe, or many seeds of one in a process."""

import argparse
import signal
import sys
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quarl_bench.cli.arguments import new_command, read_path, read_seeds
from quarl_bench.cli.emulation import warn_of_emulation
from quarl_bench.cli.opening import name_task
from quarl_bench.cli.printing import print_result, say
from quarl_bench.cli.stopping import STOPPING, listen_for_stop
from quarl_bench.system.atomic import check_replaceable, is_empty
from quarl_bench.system.counts import MOST_SEED, MOST_STEPS, read_natural, read_positive
from quarl_bench.system.extras import needing
from quarl_bench.system.places import default_cache

if TYPE_CHECKING:
    from quarl_bench.policies.storage.folder import Stored
    from quarl_bench.spec import PolicySpec
    from quarl_bench.training.recipes import Recipe
    from quarl_bench.training.sb3.run import TrainingOptions


def add_command(commands: Any) -> None:
    """Add `quarl train`: an algorithm, an environment, seeds, and how the recipe is changed."""
    command = new_command(commands, "train", run, "quarl train ppo cartpole --seed 0", STOPPING)
    command.add_argument("algo", help="algorithm, for example ppo")
    command.add_argument("environment", help="environment, for example cartpole or CartPole-v1")
    command.add_argument("--seed", type=partial(read_natural, most=MOST_SEED), help="training seed. Default: 0.")
    command.add_argument(
        "--origin",
        default="",
        help="variant of the recipe: control, layernorm, aware, or a precision as below. Default: none.",
    )
    command.add_argument(
        "--precision", metavar="NAME",
        help="precision of training's matrix products: fp32, bf16 or fp16; weights stay fp32. Default: the recipe's.",
    )  # fmt: skip
    command.add_argument(
        "--scheme", default="",
        help="qat8..qat2, or i<bits>c<bits>o<bits>[h<width>]: train with the quantizer. Default: fp32. Of several, as "
        "qat8,qat4, the steps before they round are trained once; --output is then the folder of their folders.",
    )  # fmt: skip
    command.add_argument(
        "--quant-delay", type=partial(read_natural, most=MOST_STEPS), metavar="STEPS",
        help="environment steps before the quantizer begins to round. Default: half of all.",
    )  # fmt: skip
    command.add_argument(
        "--steps",
        type=partial(read_positive, most=MOST_STEPS),
        help="environment steps per seed. Default: the recipe's.",
    )
    command.add_argument("--output", type=read_path, help="folder to write. Default: the cache, where pytest finds it.")
    command.add_argument(
        "--resume", action="store_true",
        help="go on from the last checkpoint, and keep a policy that is finished. Default: start anew.",
    )  # fmt: skip
    command.add_argument(
        "--finish", action="store_true",
        help="keep the best policy of the last checkpoint as it is, and train no further; its manifest says how far it "
        "came. Default: train to the end.",
    )  # fmt: skip
    command.add_argument("--force", action="store_true", help="replace a policy that exists. Default: keep it.")
    command.add_argument(
        "--workers", type=read_positive, default=1, metavar="N",
        help="cores to use: torch's threads, and processes that step Atari games. Default: 1.",
    )  # fmt: skip
    many = command.add_argument_group(
        "many seeds of SAC or DDPG in one process; --output is the folder of their folders"
    )
    many.add_argument(
        "--seeds", type=read_seeds, metavar="LIST", help="training seeds, as 0..9 or 0,1,2. Default: that of --seed."
    )
    many.add_argument(
        "--width", type=read_positive, help="width of the hidden layers of an fp32 actor. Default: the recipe's."
    )
    many.add_argument("--raw", action="store_true", help="do not normalize observations. Default: normalize.")


def run(options: argparse.Namespace) -> int:
    """Train one policy or several seeds, write it, and print its return; a signal to stop leaves a checkpoint."""
    from quarl_bench.errors import SpecError
    from quarl_bench.quantization.scheme import Family, Scheme

    with needing("sb3", "training"):
        from quarl_bench.training.sb3.run import TrainingOptions

    settings = TrainingOptions(options.resume, sys.stderr.isatty(), listen_for_stop(signal.SIGTERM), options.workers)
    if options.seed is not None and options.seeds is not None:
        raise SpecError("--seed, --seeds: two answers to one question; leave one out")
    options.seed, options.environment = options.seed or 0, name_task(options.environment)
    several = "," in options.scheme
    if options.finish and (several or options.seeds is not None):
        raise SpecError("--finish: for one policy; no --seeds, and one --scheme")
    learned = options.scheme and not several and Scheme.parse(options.scheme).family is Family.LEARNED
    if not several and (options.seeds is not None or learned):
        return train_many(options, settings)
    if options.width or options.raw:
        raise SpecError("--width and --raw: pass --seeds too, as --seeds 0..9")
    return (train_arms if several else train_one)(options, settings)


def train_one(options: argparse.Namespace, settings: "TrainingOptions") -> int:
    """Train one policy by the recipe of its cell."""
    from quarl_bench.errors import SpecError
    from quarl_bench.experiments.store import Store, StorePaths, Train
    from quarl_bench.spec import PolicySpec
    from quarl_bench.training.schemes import finish_policy, load_finished_policy, train_policy

    spec = PolicySpec(options.algo, options.environment, options.seed, find_origin(options), options.scheme)
    if options.finish and options.output is None:
        raise SpecError("--finish: pass --output too; the cache holds policies that were trained to the end")
    if options.output is None and (options.steps or options.quant_delay is not None):
        raise SpecError("--steps and --quant-delay: pass --output too; the cache holds the recipes' own")
    if options.quant_delay is not None and not spec.scheme:
        raise SpecError("--quant-delay: pass --scheme too")
    recipe = choose_recipe(options, spec)

    def train(spec: PolicySpec, recipe: "Recipe", folder: Path, checkpoint: Path) -> "Stored":
        if options.finish:
            return finish_policy(spec, recipe, folder, checkpoint, settings)
        warn_of_emulation({recipe.precision})
        return train_policy(spec, recipe, folder, checkpoint, settings)

    folder = options.output
    if folder is None:
        mode = Train.ALWAYS if options.force else Train.MISSING
        store = Store(StorePaths(default_cache()), mode, trainer=train, note=say)
        stored = store.integers(spec) if spec.scheme else store.policy(spec)
    else:
        there = _check_taken(options, [folder]) and not options.force
        checkpoint = folder.with_name(folder.name + ".checkpoint")
        stored = load_finished_policy(spec, recipe.sha256, folder) if there else train(spec, recipe, folder, checkpoint)
    print_result(options, *describe_trained(spec, stored, folder))
    return 0


def train_arms(options: argparse.Namespace, settings: "TrainingOptions") -> int:
    """Train one seed under several schemes, and say how well each plays."""
    from quarl_bench.errors import SpecError
    from quarl_bench.quantization.scheme import Family, Scheme
    from quarl_bench.spec import PolicySpec
    from quarl_bench.training.schemes import train_schemes

    if options.output is None or options.seeds is not None:
        raise SpecError(f"--scheme {options.scheme}: pass --output, the folder of the policies' folders; no --seeds")
    spec = PolicySpec(options.algo, options.environment, options.seed, find_origin(options))
    schemes = options.scheme.split(",")
    if len({*schemes}) < len(schemes):
        raise SpecError(f"--scheme {options.scheme}: a scheme is named twice")
    for scheme in schemes:
        if not scheme or Scheme.parse(scheme).family is not Family.AWARE:
            raise SpecError(f"--scheme {options.scheme}: {scheme!r} cannot share steps; train with one of qat2..qat8")
    recipes = {scheme: choose_recipe(options, replace(spec, scheme=scheme)) for scheme in schemes}
    warn_of_emulation({recipe.precision for recipe in recipes.values()})
    _check_taken(options, [options.output / replace(spec, scheme=scheme).name for scheme in schemes])
    return print_trained(options, list(train_schemes(spec, recipes, options.output, settings)))


def _check_taken(options: argparse.Namespace, folders: Iterable[Path]) -> list[Path]:
    """The folders that hold something; StoreError where they may not be replaced, or hold no policy."""
    from quarl_bench.errors import StoreError
    from quarl_bench.policies.storage.fp32 import INTEGERS, WEIGHTS

    taken = [folder for folder in folders if folder.exists() and not is_empty(folder)]
    if taken and not (options.force or options.resume):
        raise StoreError(f"{taken[0]} exists; pass --force to replace it, or another --output")
    for folder in taken:
        check_replaceable(folder, WEIGHTS, INTEGERS)
    return taken


def choose_recipe(options: argparse.Namespace, spec: "PolicySpec") -> "Recipe":
    """The recipe of a policy, with the steps that the options say instead."""
    from quarl_bench.errors import SpecError
    from quarl_bench.training.multi_seed.agents import AGENTS
    from quarl_bench.training.recipes import find_recipe

    try:
        own = find_recipe(spec.algo, spec.environment, spec.origin, spec.scheme)
    except SpecError as error:
        if spec.algo not in AGENTS:
            raise
        raise SpecError(f"{error}; to train many seeds in one process pass --seeds, as --seeds 0..9") from error
    if not options.steps and options.quant_delay is None:
        return own
    numbers = {"timesteps": options.steps, "quant_delay": options.quant_delay}
    return find_recipe(spec.algo, spec.environment, spec.origin, spec.scheme, **numbers)


def find_origin(options: argparse.Namespace) -> str:
    """The arm of --origin or of --precision; the recipe itself where it has that precision."""
    from quarl_bench.errors import SpecError
    from quarl_bench.training.recipes import find_recipe

    if options.precision is None:
        return str(options.origin)
    if options.origin:
        raise SpecError(f"--origin {options.origin} and --precision {options.precision} are two arms; pass one of them")
    recipe = find_recipe(options.algo, options.environment)
    return "" if options.precision == recipe.precision else recipe.train_in(options.precision).precision


def train_many(options: argparse.Namespace, settings: "TrainingOptions") -> int:
    """Train all seeds in this process, and say how well each plays."""
    from quarl_bench.errors import SpecError
    from quarl_bench.quantization.scheme import Family, Scheme
    from quarl_bench.training.multi_seed.recipe import find_recipe, name_policy
    from quarl_bench.training.multi_seed.train import complete_seeds, train_seeds

    if options.output is None or options.origin or options.quant_delay is not None:
        raise SpecError("--seeds: pass --output, the folder of the policies' folders; no --origin, --quant-delay")
    seeds = options.seeds or (options.seed,)
    learned = bool(options.scheme) and Scheme.parse(options.scheme).family is Family.LEARNED
    changes = {"timesteps": options.steps, "actor_width": options.width, "precision": options.precision}
    recipe = find_recipe(options.algo).quantize(options.scheme or "fp32")
    if options.width and learned:
        bits = options.scheme.partition("h")[0]
        raise SpecError(f"--width is an fp32 actor's; write --scheme {bits}h{options.width}")
    recipe = recipe.override(normalize=not options.raw, **{key: value for key, value in changes.items() if value})
    _check_taken(options, [options.output / name_policy(recipe, options.environment, seed).name for seed in seeds])
    warn_of_emulation({recipe.precision})
    train = complete_seeds if options.resume and not options.force else train_seeds
    return print_trained(options, train(recipe, options.environment, seeds, options.output, settings))


def print_trained(options: argparse.Namespace, trained: Iterable[tuple["PolicySpec", "Stored"]]) -> int:
    """Say how well every policy below --output plays."""
    told = [describe_trained(spec, stored, options.output / spec.name) for spec, stored in trained]
    print_result(options, {"policies": [result for result, _ in told]}, "\n".join(line for _, line in told))
    return 0


def describe_trained(spec: "PolicySpec", stored: "Stored", folder: Path | None) -> tuple[dict[str, Any], str]:
    """A policy's return beside the published one: as JSON types, and as a line."""
    score, published = stored.metadata["return"], stored.metadata["published"]
    result = {"policy": spec.name, "folder": None if folder is None else str(folder), "sha256": stored.sha256}
    line = f"{spec.name}: return {score['mean']:.1f} (SD {score['sd']:.1f} of {score['episodes']} episodes)"
    if published:
        spread = "" if published["sd"] is None else f"SD {published['sd']:g}; "
        line += f"; published {published['mean']:g} ({spread}{published['source']})"
    return result | {"return": score, "published": published}, line
