"""`quarl`: the same machinery for people who are not running a test. Results go to stdout, progress to stderr."""

import argparse
import json
import math
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quarl_bench import __version__
from quarl_bench.errors import QuarlError, SpecError
from quarl_bench.places import default_cache

if TYPE_CHECKING:  # torch takes seconds to import; `--help` and usage errors do without
    from quarl_bench.policy.files import StoredPolicy
    from quarl_bench.rl.environments import Environment

EXIT_CODES = "exit codes: 0 done, 2 wrong input (one line on stderr), 3 stopped at a checkpoint, 130 interrupted"
STOPPED = 3


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit code is returned."""
    options = _build_parser().parse_args(arguments)
    try:
        return int(options.run(options))
    except QuarlError as error:
        print(f"quarl {options.command}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


def _build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="quarl", description="Train, evaluate, deploy quantized policies.")
    parser.add_argument("--version", action="version", version=f"quarl {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    train = _add_command(commands, "train", _train, "Train one policy by its recipe.",
                         "quarl train ppo cartpole --seed 0")  # fmt: skip
    train.add_argument("algo", help="algorithm, for example ppo")
    train.add_argument("environment", help="environment, for example cartpole")
    train.add_argument("--seed", type=_natural, default=0, help="training seed. Default: 0.")
    train.add_argument("--output", type=Path, help="folder to write. Default: the cache, where pytest finds it.")
    train.add_argument("--resume", action="store_true", help="go on from the last checkpoint of the same run.")
    train.add_argument("--force", action="store_true", help="replace a policy that exists.")

    evaluate = _add_command(commands, "evaluate", _evaluate, "Play a policy under a scheme, against its fp32 self.",
                            "quarl evaluate baselines/policies/ppo-cartpole-seed0 --scheme w8")  # fmt: skip
    _add_policy(evaluate)
    evaluate.add_argument("--scheme", default="fp32", help="fp32, fp16, w2..w32, int2..int8. Default: fp32.")
    evaluate.add_argument("--episodes", type=_positive, default=100, help="environment seeds to play. Default: 100.")

    deploy = _add_command(commands, "deploy", _deploy, "Export a policy as an artefact and re-run its golden pairs.",
                          "quarl deploy POLICY --scheme int8 --output cartpole-int8")  # fmt: skip
    _add_policy(deploy)
    deploy.add_argument("--scheme", default="int8", help="fp32, fp16, w2..w32 or int8. Default: int8.")
    deploy.add_argument("--backend", default="litert", choices=["litert"], help="runtime. Default: litert.")
    deploy.add_argument("--output", type=Path, required=True, help="folder to write; an existing one is replaced.")
    return parser


def _add_command(
    commands: Any, name: str, run: Callable[[argparse.Namespace], int], help: str, example: str
) -> argparse.ArgumentParser:
    command: argparse.ArgumentParser = commands.add_parser(
        name,
        help=help,
        description=help,
        epilog=f"example: {example}\n\n{EXIT_CODES}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.add_argument("--json", action="store_true", help="print one JSON object instead of text.")
    command.set_defaults(run=run)
    return command


def _add_policy(command: argparse.ArgumentParser) -> None:
    command.add_argument("policy", type=Path, help="folder with policy.safetensors and manifest.json")
    command.add_argument("--environment", help="environment name or Gymnasium id. Default: the manifest's.")


def _train(options: argparse.Namespace) -> int:
    from quarl_bench.errors import StoreError
    from quarl_bench.rl.recipes import find_recipe
    from quarl_bench.rl.train import Interrupted, Options, train_policy
    from quarl_bench.spec import PolicySpec
    from quarl_bench.store import Places, Store, Train

    spec = PolicySpec(options.algo, options.environment, options.seed)
    recipe = find_recipe(spec.algo, spec.environment)
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
                note=_say,
            )
            stored = store.policy(spec)
        else:
            folder = options.output
            if folder.exists() and not options.force:
                raise StoreError(f"{folder} exists; pass --force to replace it, or another --output")
            checkpoint = folder.with_name(folder.name + ".checkpoint")
            stored = train_policy(spec, recipe, folder, checkpoint, settings)
    except Interrupted as reason:
        _say(str(reason))
        return STOPPED
    score = stored.about["return"]
    published = stored.about["published"]
    result = {"policy": spec.name, "folder": None if folder is None else str(folder), "sha256": stored.sha256}
    text = f"{spec.name}: return {score['mean']:.1f} +- {score['sd']:.1f} over {score['episodes']} episodes"
    if published:
        spread = "" if published["sd"] is None else f" +- {published['sd']:g}"
        text += f"; published {published['mean']:g}{spread}"
    _print(options, result | {"return": score, "published": published}, text)
    return 0


def _evaluate(options: argparse.Namespace) -> int:
    from quarl_bench.claims.judge import describe
    from quarl_bench.claims.verdict import judge_retention
    from quarl_bench.quant.scheme import Scheme
    from quarl_bench.report.rows import summarise
    from quarl_bench.rl.evaluate import TEST_SEEDS, measure

    _use_one_thread()
    scheme = Scheme.parse(options.scheme)
    stored, environment = _open(options)
    seeds = range(TEST_SEEDS, TEST_SEEDS + options.episodes)
    reference = measure([(stored.sha256, stored.policy)], environment, seeds)
    quantized = _quantize(stored, environment, scheme)
    measured = measure([(stored.sha256, quantized)], environment, seeds, [stored.policy])
    verdict = judge_retention(reference, measured, cap=environment.cap)
    result = {
        "scheme": scheme.name,
        "environment": environment.id,
        "measured": summarise(measured),
        "reference": summarise(reference),
        "verdict": verdict.as_dict(),
    }
    (agreement,) = measured.agreement or (0.0,)
    lines = [
        f"{environment.id}, {options.episodes} episodes, deterministic, measured on this machine",
        f"  fp32      return {_spread(reference.returns[0])}",
        f"  {scheme.name:<9} return {_spread(measured.returns[0])}, same action in {agreement:.2%} of its states",
        f"  keeps 95% of the return? {describe(verdict)}",
        *(f"  note: {caveat}" for caveat in verdict.caveats),
    ]
    _print(options, result, "\n".join(lines))
    return 0


def _deploy(options: argparse.Namespace) -> int:
    from quarl_bench.deploy import litert
    from quarl_bench.quant.scheme import Scheme
    from quarl_bench.rl.evaluate import CALIBRATION_SEEDS, collect_observations

    _use_one_thread()
    scheme = Scheme.parse(options.scheme)
    stored, environment = _open(options)
    quantized = _quantize(stored, environment, scheme)
    golden = collect_observations(stored.policy, environment, 256, CALIBRATION_SEEDS)
    litert.export_policy(quantized, options.output, golden, scheme=scheme.name, source_sha256=stored.sha256)
    deployed = litert.load_artefact(options.output)
    pairs = litert.verify(deployed)
    size = sum(file.stat().st_size for file in options.output.glob("*.tflite"))
    result = {"folder": str(options.output), "scheme": scheme.name, "backend": options.backend, "bytes": size}
    text = f"{options.output}: {scheme.name} .tflite of {size:,} bytes; {pairs} golden pairs re-run, all equal"
    _print(options, result | {"golden_pairs": pairs}, text)
    return 0


def _open(options: argparse.Namespace) -> "tuple[StoredPolicy, Environment]":
    from quarl_bench.policy.files import load_policy
    from quarl_bench.rl.environments import identify_environment

    stored = load_policy(options.policy)
    name = options.environment or stored.about.get("environment")
    if not isinstance(name, str):
        raise SpecError(f"{options.policy}: the manifest names no environment; pass --environment")
    return stored, identify_environment(name)


def _quantize(stored: "StoredPolicy", environment: "Environment", scheme: Any) -> Any:
    from quarl_bench.cells import CALIBRATION_STATES
    from quarl_bench.policy.policy import deployable
    from quarl_bench.rl.evaluate import CALIBRATION_SEEDS, collect_observations

    observations = None
    if scheme.integer and scheme.calibrated:
        observations = collect_observations(stored.policy, environment, CALIBRATION_STATES, CALIBRATION_SEEDS)
    return deployable(stored.policy.quantize(scheme, observations))


def _use_one_thread() -> None:
    import torch

    torch.set_num_threads(1)


def _spread(returns: Sequence[float]) -> str:
    mean = sum(returns) / len(returns)
    variance = sum((value - mean) ** 2 for value in returns) / max(len(returns) - 1, 1)
    return f"{mean:.2f} +- {math.sqrt(variance):.2f}"


def _print(options: argparse.Namespace, result: dict[str, Any], text: str) -> None:
    print(json.dumps(result) if options.json else text)


def _say(line: str) -> None:
    print(line, file=sys.stderr)


def _positive(text: str) -> int:
    number = _natural(text)
    if number == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return number


def _natural(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 0")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
