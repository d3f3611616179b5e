"""`quarl evaluate`: a policy under a scheme, against its fp32 self."""

import argparse
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quarl_bench.cli.arguments import add_task, new_command, read_path
from quarl_bench.cli.opening import find_integers, open_task, refuse_other_scheme, use_one_thread
from quarl_bench.cli.printing import announce, print_result
from quarl_bench.evaluation.profiles import EPISODES
from quarl_bench.system.bars import open_note
from quarl_bench.system.counts import read_episodes, read_natural
from quarl_bench.views.text import describe_returns

if TYPE_CHECKING:
    from quarl_bench.environments.registry import Environment
    from quarl_bench.policies.policy import Policy
    from quarl_bench.policies.storage.fp32 import StoredPolicy
    from quarl_bench.policies.storage.integers import StoredIntegers

STATES = 256  # from which an artefact's golden pairs are taken


def add_command(commands: Any) -> None:
    """Add `quarl evaluate`: a policy, a scheme, the number of episodes, and how actions are drawn."""
    command = new_command(commands, "evaluate", run,
        "quarl evaluate baselines/policies/ppo-cartpole-seed0 --scheme w8")  # fmt: skip
    add_task(command)
    command.add_argument("--scheme", default="fp32", help="fp32, fp16, w2..w32, int2..int8, i8c3o8ptq. Default: fp32.")
    command.add_argument(
        "--backend", metavar="NAME",
        help="play the deployed artefact in its runtime, as litert, c or onnx, instead of the simulation. Default: the "
        "simulation.",
    )  # fmt: skip
    command.add_argument(
        "--against", type=read_path, metavar="POLICY",
        help="fp32 policy to compare with, where POLICY holds integers, as of quarl train --scheme. Default: none.",
    )  # fmt: skip
    command.add_argument(
        "--episodes", type=read_episodes, default=EPISODES, help=f"episodes per scheme. Default: {EPISODES}."
    )
    command.add_argument(
        "--sampled", action="store_true",
        help="draw actions from the softmax of the outputs, with the same random numbers for fp32 and the scheme; of "
        "A2C's and PPO's policies with discrete actions. Default: the likeliest action.",
    )  # fmt: skip
    command.add_argument(
        "--states", type=read_natural, default=0, metavar="N",
        help="also compare actions, and a softmax policy's action probabilities by KL(fp32 || quantized), in N states "
        "that the fp32 policy visits. Default: 0.",
    )  # fmt: skip


def run(options: argparse.Namespace) -> int:
    """Play both on the same environment seeds and judge the difference."""
    with open_note(f"evaluating {options.policy} in {options.scheme}, {options.episodes} episodes"):
        use_one_thread("quarl_bench.backends.registry", "quarl_bench.report.rows.builder")
    from quarl_bench.backends.registry import find_backend
    from quarl_bench.errors import SpecError
    from quarl_bench.evaluation.episode_bars import quantize_with_bar
    from quarl_bench.quantization.scheme import Scheme

    if options.backend is not None:
        options.backend = find_backend(options.backend)
        options.backend.identify()  # a missing runtime or compiler says so before anything is played
    integers = find_integers(options)
    if integers is not None:
        return play_integers(options, *integers)
    scheme = Scheme.parse(options.scheme)
    stored, environment = open_task(options)
    if options.against is not None:
        raise SpecError(f"--against: {options.policy} holds no integers; it is held against its own fp32 self")
    _refuse_unsampled(options, stored, options.policy)
    own = stored.metadata.get("quantization", {}).get("scheme", "fp32")  # of a folder that `quarl quantize` wrote
    if scheme.name == "fp32" and options.backend is None:
        if options.states:
            raise SpecError("--states: compares fp32 with another scheme; name one by --scheme")
        return play_alone(options, stored.policy, stored.sha256, own, environment)
    notes = [f"{options.policy} is rounded to {own} already"] if own != "fp32" else []
    policy = quantize_with_bar(stored.policy, scheme, environment)
    quantized = deploy(options, policy, stored, scheme.name, environment), stored.sha256, scheme.name
    return compare(options, environment, (stored, own), quantized, notes)


def deploy(
    options: argparse.Namespace,
    policy: "Policy",
    stored: "StoredPolicy | StoredIntegers",
    scheme: str,
    environment: "Environment",
) -> "Policy":
    """The policy as an artefact of --backend that runs, its golden pairs re-run; itself where none is asked for."""
    from quarl_bench.backends.export import export_policy
    from quarl_bench.evaluation.calibration import collect_states
    from quarl_bench.evaluation.protocol import CALIBRATION_SEEDS

    if options.backend is None:
        return policy
    states = collect_states(stored.policy, environment, STATES, CALIBRATION_SEEDS)
    with tempfile.TemporaryDirectory(prefix="quarl-evaluate-") as folder:
        where, name = Path(folder) / "artefact", options.backend.name
        return export_policy(policy, where, states, scheme=scheme, source_sha256=stored.sha256, backend=name)


def describe_player(policy: "Policy", scheme: str) -> tuple[dict[str, Any], list[str]]:
    """What plays a deployed policy, as JSON types and as a line; nothing of a simulated one."""
    from quarl_bench.backends.deployed import DeployedPolicy

    if not isinstance(policy, DeployedPolicy):
        return {}, []
    made, runtime = policy.artefact, policy.artefact.runtime
    where = f"in {runtime.name} {runtime.version}, kernel {runtime.kernel}"
    line = (
        f"  {scheme} is played by its {made.backend} artefact, {where}; {len(made.golden.actions)} golden pairs re-run"
    )
    return {"backend": {"name": made.backend, "runtime": asdict(runtime)}}, [line]


def _describe_play(options: argparse.Namespace, environment: "Environment") -> str:
    how = "sampled actions" if options.sampled else "deterministic"
    return f"{environment.id}, {options.episodes} episodes, {how}, measured on this machine"


def _refuse_unsampled(options: argparse.Namespace, stored: "StoredPolicy", where: Path) -> None:
    from quarl_bench.errors import PolicyError
    from quarl_bench.policies.algorithm import is_actor_critic

    if options.sampled and not (stored.policy.head.discrete and is_actor_critic(stored.metadata.get("algo"))):
        raise PolicyError(
            f"--sampled: {where} has no logits of a softmax to draw from; A2C's and PPO's policies with discrete "
            "actions have"
        )


def compare(
    options: argparse.Namespace,
    environment: "Environment",
    base: "tuple[StoredPolicy, str]",
    other: "tuple[Policy, str, str]",
    notes: list[str],
) -> int:
    """Judge the `other` policy (itself, its hash, its scheme) against the `base` one (itself, its scheme)."""
    from quarl_bench.evaluation.episode_bars import show_episodes, show_states
    from quarl_bench.evaluation.protocol import TEST_SEEDS, list_test_seeds
    from quarl_bench.evaluation.rollouts import measure
    from quarl_bench.evaluation.state_agreement import compare_states
    from quarl_bench.judging.modes import describe
    from quarl_bench.judging.retention import judge_retention
    from quarl_bench.policies.clipping import count_clipped
    from quarl_bench.report.rows.builder import summarise

    (stored, own), (policy, sha256, scheme) = base, other
    player, told = describe_player(policy, scheme)
    begun = announce(options, [_describe_play(options, environment), *told, *(f"  note: {note}" for note in notes)])
    seeds = list_test_seeds(options.episodes)
    with show_episodes(stored.policy, environment, seeds, own, sampled=options.sampled) as shown:
        reference = measure([(stored.sha256, shown)], environment, seeds, sampled=options.sampled)
    counted, counter = count_clipped(policy)
    with show_episodes(counted, environment, seeds, scheme, sampled=options.sampled) as shown:
        measured = measure([(sha256, shown)], environment, seeds, [stored.policy], sampled=options.sampled)
    verdict = judge_retention(reference, measured, cap=environment.cap)
    result = {
        "scheme": scheme,
        "environment": environment.id,
        "measured": summarise(measured),
        "reference": summarise(reference),
        "verdict": verdict.as_dict(),
        "clipped": counter.as_dict(),
    }
    (agreement,) = measured.agreement or (0.0,)
    alike = f"same action in {agreement:.2%}"
    lines = [
        *begun,
        f"  {own:<9} return {describe_returns(reference.returns[0])}",
        f"  {scheme:<9} return {describe_returns(measured.returns[0])}, {alike} of its states",
        f"  keeps 95% of the return? {describe(verdict)}",
        *(f"  note: {caveat}" for caveat in verdict.caveats),
    ]
    if counter.seen:
        lines.append(f"  note: {counter.describe()}")
    if options.states:
        states = show_states(stored.policy, environment, options.states, TEST_SEEDS, "comparing")
        found = compare_states(stored.policy, counted, states, stored.metadata.get("algo"))
        result["states"] = asdict(found)
        kl = "no KL: its outputs are no logits of a softmax" if found.kl is None else f"KL {found.kl:.3g} nats a state"
        lines.append(f"  in {found.states} states of the fp32 policy: same action in {found.agreement:.2%}; {kl}")
    print_result(options, result | player, "\n".join(lines))
    return 0


def play_integers(options: argparse.Namespace, kept: "StoredIntegers", scheme: str, environment: "Environment") -> int:
    """Play integers, against the fp32 policy of --against, if there is one."""
    from quarl_bench.errors import SpecError
    from quarl_bench.experiments.policy_source import PolicySource, find_baseline
    from quarl_bench.experiments.policy_source import open_task as open_named

    if options.scheme != "fp32":  # the default
        refuse_other_scheme(options, scheme)
    policy = deploy(options, kept.policy, kept, scheme, environment)
    if options.against is None:
        if options.sampled or options.states:
            raise SpecError(
                f"{options.policy}: holds integers of {scheme} and no fp32 policy beside it; --sampled and --states "
                "compare the two, so name one by --against"
            )
        return play_alone(options, policy, kept.sha256, scheme, environment)
    stored, home = open_named(PolicySource(find_baseline(options.against), options.environment))
    if home.id != environment.id:
        raise SpecError(f"--against: {options.against} plays {home.id}, {options.policy} {environment.id}")
    _refuse_unsampled(options, stored, options.against)
    notes = _list_differences(stored.metadata, kept.metadata)
    return compare(options, environment, (stored, "fp32"), (policy, kept.sha256, scheme), notes)


def _list_differences(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """What else than the numbers of bits differs between two trainings."""
    steps = [about.get("recipe", {}).get("timesteps") for about in (one, other)]
    seeds = [about.get("seed") for about in (one, other)]
    notes = []
    if None not in steps and steps[0] != steps[1]:
        notes.append(f"trained for {steps[0]:,} and {steps[1]:,} environment steps")
    if None not in seeds and seeds[0] != seeds[1]:
        notes.append(f"of training seeds {seeds[0]} and {seeds[1]}")
    return notes


def play_alone(
    options: argparse.Namespace, policy: "Policy", sha256: str, scheme: str, environment: "Environment"
) -> int:
    """Play a policy that is compared with none."""
    from quarl_bench.evaluation.episode_bars import show_episodes
    from quarl_bench.evaluation.protocol import list_test_seeds
    from quarl_bench.evaluation.rollouts import measure
    from quarl_bench.policies.clipping import count_clipped
    from quarl_bench.report.rows.builder import summarise

    player, told = describe_player(policy, scheme)
    begun = announce(options, [_describe_play(options, environment), *told])
    counted, counter = count_clipped(policy)
    seeds = list_test_seeds(options.episodes)
    with show_episodes(counted, environment, seeds, scheme, sampled=options.sampled) as shown:
        measured = measure([(sha256, shown)], environment, seeds, sampled=options.sampled)
    lines = [
        *begun,
        f"  {scheme:<9} return {describe_returns(measured.returns[0])}",
    ]
    if counter.seen:
        lines.append(f"  note: {counter.describe()}")
    result = {"scheme": scheme, "environment": environment.id, "measured": summarise(measured)}
    print_result(options, result | player | {"clipped": counter.as_dict()}, "\n".join(lines))
    return 0
