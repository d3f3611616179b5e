"""`quarl deploy`: a policy as an artefact that has proved itself."""

import argparse
from typing import TYPE_CHECKING, Any

from quarl_bench.cli.arguments import add_task, new_command, read_path
from quarl_bench.cli.opening import find_integers, open_task, refuse_other_scheme, use_one_thread
from quarl_bench.cli.printing import print_result
from quarl_bench.errors import SpecError

if TYPE_CHECKING:
    from quarl_bench.policies.policy import Policy

STATES = 256  # from which the golden pairs are taken


def add_command(commands: Any) -> None:
    """Add `quarl deploy`: a policy, a scheme, a backend, and the folder of the artefact."""
    command = new_command(commands, "deploy", run,
        "quarl deploy POLICY --scheme int8 --output cartpole-int8")  # fmt: skip
    add_task(command)
    command.add_argument(
        "--scheme",
        help="fp32, fp16, w2..w32, int<bits>, i<bits>c<bits>o<bits>ptq; of integers, litert runs int8 alone. Default: "
        "int8; of litert-dynamic, w8symnarrowpc, its weights' own; of a folder of integers, as training with --scheme "
        "writes it, theirs.",
    )
    command.add_argument(
        "--backend", default="litert",
        help="form of the artefact: litert (or tflite), litert-dynamic, c, onnx, dump, or an installed one of others. "
        "Default: litert.",
    )  # fmt: skip
    command.add_argument(
        "--output", type=read_path, required=True, help="folder to write; an artefact there is replaced. Default: none."
    )


def run(options: argparse.Namespace) -> int:
    """Export, load again, and re-run the golden pairs."""
    from quarl_bench.backends.deployed import TOLERANCE, load_artefact, verify
    from quarl_bench.backends.export import export_policy
    from quarl_bench.backends.registry import find_backend
    from quarl_bench.evaluation.calibration import collect_states
    from quarl_bench.evaluation.episode_bars import quantize_with_bar
    from quarl_bench.evaluation.protocol import CALIBRATION_SEEDS
    from quarl_bench.quantization.scheme import Scheme

    use_one_thread()
    if options.backend == "fpga":
        raise SpecError("--backend fpga: a design is what `quarl fpga` writes, with what it takes on a part")
    backend = find_backend(options.backend)  # an unknown one says so before anything is played
    scheme = Scheme.parse(options.scheme or backend.scheme)
    player: Policy
    quantized: Policy
    integers = find_integers(options)
    if integers is None:
        stored, environment = open_task(options)
        backend.identify()  # so does a missing runtime or compiler
        player, sha256 = stored.policy, stored.sha256
        quantized = quantize_with_bar(player, scheme, environment)
    else:
        kept, name, environment = integers
        refuse_other_scheme(options, name)
        backend.identify()
        player, quantized, sha256, scheme = kept.policy, kept.policy, kept.sha256, Scheme.parse(name)
    golden = collect_states(player, environment, STATES, CALIBRATION_SEEDS)
    export_policy(
        quantized,
        options.output,
        golden,
        scheme=scheme.name,
        source_sha256=sha256,
        backend=backend.name,
    )
    deployed = load_artefact(options.output)
    pairs = verify(deployed)
    size = sum(len(content) for content in deployed.artefact.files.values())
    result = {"folder": str(options.output), "scheme": scheme.name, "backend": backend.name, "bytes": size}
    equal = "all equal" if deployed.net.output else f"all within {TOLERANCE:g}"
    source = "" if backend.compile_code is None else " of source"
    made = f"{options.output}: {scheme.name}, {backend.name} of {size:,} bytes{source}"
    text = f"{made}; {pairs} golden pairs re-run, {equal}"
    print_result(options, result | {"golden_pairs": pairs}, text)
    return 0
