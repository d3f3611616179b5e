"""`quarl quantize`: a policy folder with quantized numbers."""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quarl_bench.cli.arguments import add_task, new_command, read_path
from quarl_bench.cli.opening import open_policy, open_task, use_one_thread
from quarl_bench.cli.printing import print_result
from quarl_bench.system.atomic import check_replaceable

if TYPE_CHECKING:
    from quarl_bench.policies.storage.fp32 import StoredPolicy
    from quarl_bench.quantization.scheme import Scheme

# Of the source's manifest; its scores are not those of the quantized policy.
KEPT = ("algo", "environment", "time_feature", "seed", "origin", "licence", "zip_sha256")


def add_command(commands: Any) -> None:
    """Add `quarl quantize`: a policy, a scheme, and the folder of the quantized policy."""
    command = new_command(commands, "quantize", run,
        "quarl quantize baselines/policies/ppo-cartpole-seed0 --scheme w8 --output cartpole-w8")  # fmt: skip
    add_task(command)
    command.add_argument("--scheme", default="w8", help="fp16, w2..w32, int2..int8, i8c3o8ptq. Default: w8.")
    command.add_argument(
        "--output", type=read_path, required=True, help="folder to write; a policy there is replaced. Default: none."
    )


def run(options: argparse.Namespace) -> int:
    """Quantize and write; the manifest says from what, how, and with how many levels per tensor."""
    from quarl_bench.evaluation.calibration import count_calibration
    from quarl_bench.evaluation.episode_bars import quantize_with_bar
    from quarl_bench.policies.policy import deployable
    from quarl_bench.policies.storage.fp32 import INTEGERS, WEIGHTS
    from quarl_bench.quantization.scheme import Scheme

    use_one_thread()
    scheme = Scheme.parse(options.scheme)
    check_replaceable(options.output, WEIGHTS, INTEGERS)
    home: dict[str, str | None] = {}  # where it is at home from now on
    if (scheme.integer and scheme.calibrated) or options.environment:
        stored, environment = open_task(options)
        if not environment.custom:
            home = {"environment": environment.id}
        elif stored.metadata.get("environment") == environment.id:  # a class's id is this process's own
            home = {"environment": None}
    else:  # needs no environment
        stored = open_policy(options)
    if scheme.integer and scheme.calibrated:
        policy, states = quantize_with_bar(stored.policy, scheme, environment), count_calibration(environment)
    else:
        policy, states = deployable(stored.policy.quantize(scheme)), 0
    result, text = write_quantized(options.output, policy, stored, scheme, states, home)
    print_result(options, result, text)
    return 0


def write_quantized(
    folder: Path,
    policy: Any,
    stored: "StoredPolicy",
    scheme: "Scheme",
    states: int,
    home: dict[str, str | None],
    steps: Sequence[str] = (),
    repair: Mapping[str, Any] | None = None,
) -> tuple[dict[str, Any], str]:
    """Write `policy`, which is `stored` under `scheme`, and say so in JSON types and in a line.

    The manifest says from what, how, on how many calibration `states`, with how many levels per tensor, and which
    `steps` changed the integers behind the scheme; `repair` is what chose it, in JSON types.
    """
    from quarl_bench.policies.policy import IntegerPolicy, PolicyNet
    from quarl_bench.policies.storage.fp32 import INTEGERS, WEIGHTS, save_policy
    from quarl_bench.policies.storage.integers import save_integers
    from quarl_bench.quantization.ptq import count_levels

    weights = [layer.weight for layer in policy.net.layers]
    levels = {f"layers.{index}.weight": count_levels(weight, per_channel=False) for index, weight in enumerate(weights)}
    quantization: dict[str, Any] = {
        "scheme": scheme.name,
        "rounding": str(scheme.rounding),
        "source_sha256": stored.sha256,
        "levels": levels,
        "calibration_states": states,
    }
    if steps:
        quantization["steps"] = list(steps)
    if repair is not None:
        quantization["repair"] = dict(repair)
    about = (
        {key: stored.metadata[key] for key in KEPT if key in stored.metadata} | home | {"quantization": quantization}
    )
    if isinstance(policy, IntegerPolicy):
        name, sha256 = INTEGERS, save_integers(policy, folder, about).sha256
    elif isinstance(policy, PolicyNet):
        name, sha256 = WEIGHTS, save_policy(policy, folder, about).sha256
    size = (folder / name).stat().st_size
    text = f"{folder}: {scheme.name} {name} of {size:,} bytes, at most {max(levels.values())} levels in a tensor"
    result = {"folder": str(folder), "file": name, "sha256": sha256, "bytes": size}
    return result | quantization, text
