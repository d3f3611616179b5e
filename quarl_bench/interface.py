"""What `import quarl_bench` gives: load a policy, quantize it, play it, and find out what fewer bits cost it."""

from collections.abc import Mapping
from typing import Any

from quarl_bench.checking.answer import Answer, build_answer, play_schemes, select_schemes
from quarl_bench.checking.recommendation import INT8
from quarl_bench.checking.subject import name_policy, name_source, open_subject
from quarl_bench.errors import SpecError
from quarl_bench.evaluation.profiles import EPISODES
from quarl_bench.evaluation.protocol import list_test_seeds
from quarl_bench.evaluation.rollouts import measure
from quarl_bench.experiments.environment_source import resolve_environment
from quarl_bench.experiments.member import FP32
from quarl_bench.experiments.policy_source import open_stored, open_task
from quarl_bench.experiments.store import Store
from quarl_bench.experiments.zoo_agents import check_fit
from quarl_bench.judging.outcomes import MARGIN
from quarl_bench.policies.observation import Normalization
from quarl_bench.policies.policy import (
    IntegerPolicy,
    Observations,
    Policy,
    PolicyNet,
    QuantizedPolicy,
    deployable,
    require_integer,
)
from quarl_bench.policies.storage.integers import hash_integers
from quarl_bench.quantization.scheme import Scheme, read_scheme
from quarl_bench.repairing.plan import BUDGET, Plan, Repair, repair_policy
from quarl_bench.spec import Measurement
from quarl_bench.system.counts import check_episodes
from quarl_bench.system.places import default_cache


def load_policy(
    policy: Any,
    env: Any = None,
    *,
    env_kwargs: Mapping[str, Any] | None = None,
    algo: str | None = None,
    normalization: str | Normalization | None = None,
    arch: str | None = None,
) -> PolicyNet:
    """The fp32 policy in a file, behind a name, or in your hand.

    Args:
        policy: A path of a .zip, an .onnx file, a folder or a state dictionary; the name of a baseline;
            `hub:OWNER/REPOSITORY`; `module:attribute`; or a live model of stable-baselines3 or torch.
        env: Its environment, as `check` takes it. Needed of a network alone, which does not say its spaces.
        env_kwargs: What the environment is made with, as `{"gravity": 5.0}`.
        algo: The algorithm of a .zip that does not say it, as `ppo`.
        normalization: A file of a saved VecNormalize, or `none` for raw observations.
        arch: Modules and activations of a state dictionary, as `fc1,relu,fc2`, or a preset, as `cleanrl-ppo`; of a
            checkpoint of rsl_rl, rl_games or skrl its activation, as `elu`; of an .onnx file the output that is the
            action, or `means`.

    Returns:
        The whole map from raw observations (n, *shape) to actions: `policy.act(observations)`.

    Raises:
        QuarlError: It cannot be read, or has no portable form. One line says what, where, and what to do.
    """
    source = name_source(policy, env, algo, normalization, arch, env_kwargs)
    return (open_stored(source) if env is None else open_task(source)[0]).policy


def quantize(
    policy: Any,
    scheme: Scheme | str = INT8,
    env: Any = None,
    *,
    observations: Observations | None = None,
    env_kwargs: Mapping[str, Any] | None = None,
    algo: str | None = None,
    normalization: str | Normalization | None = None,
    arch: str | None = None,
) -> Policy:
    """The policy under a scheme: as integers for `int<bits>`, else with rounded weights.

    Args:
        policy: As `load_policy` takes it.
        scheme: Its name, as `int8`, `w4` or `fp16`.
        env: The environment whose states the activations' ranges come from. The default is the policy's own.
        observations: Raw observations (n, *shape) for these ranges instead, in the order of a visit.
        env_kwargs: What the environment is made with, as `{"gravity": 5.0}`.
        algo: As of `load_policy`.
        normalization: As of `load_policy`.
        arch: As of `load_policy`.

    Returns:
        A policy that acts as the deployed one does: `policy.act(observations)`.

    Raises:
        QuantizationError: The policy has no form in this scheme.
        QuarlError: The policy, the scheme or the environment is not what it has to be.
    """
    parsed = read_scheme(scheme)
    if observations is None and parsed.integer and parsed.calibrated:
        return open_subject(
            policy, env, env_kwargs=env_kwargs, algo=algo, normalization=normalization, arch=arch
        ).quantize(parsed)
    loaded = load_policy(policy, env, env_kwargs=env_kwargs, algo=algo, normalization=normalization, arch=arch)
    return deployable(loaded.quantize(parsed, observations))


def evaluate(
    policy: Any,
    env: Any = None,
    *,
    episodes: int = EPISODES,
    env_kwargs: Mapping[str, Any] | None = None,
    algo: str | None = None,
    normalization: str | Normalization | None = None,
    arch: str | None = None,
) -> Measurement:
    """Play a policy, one episode for each environment seed; the same seeds in every call.

    Args:
        policy: As `load_policy` takes it, or what `quantize` gave.
        env: Where it plays. The default is the policy's own; what `quantize` gave has none.
        episodes: How many environment seeds.
        env_kwargs: What the environment is made with, as `{"gravity": 5.0}`.
        algo: As of `load_policy`.
        normalization: As of `load_policy`.
        arch: As of `load_policy`.

    Returns:
        Undiscounted returns and lengths in environment steps of the episodes: `mean`, `returns`, `lengths`.

    Raises:
        QuarlError: The policy does not fit the environment, or one of them is not what it has to be.
    """
    check_episodes(episodes)
    seeds = list_test_seeds(episodes)
    if not isinstance(policy, IntegerPolicy | QuantizedPolicy):
        subject = open_subject(policy, env, env_kwargs=env_kwargs, algo=algo, normalization=normalization, arch=arch)
        return subject.play(FP32, seeds)
    if env is None:
        raise SpecError("a quantized policy names no environment; pass env")
    environment, integers = resolve_environment(env, env_kwargs), require_integer(policy)
    check_fit(integers, environment)
    return measure([(hash_integers(integers), integers)], environment, seeds)


def check(
    policy: Any,
    env: Any = None,
    scheme: str | None = None,
    *,
    margin: float = MARGIN,
    floor: float | None = None,
    episodes: int = EPISODES,
    env_kwargs: Mapping[str, Any] | None = None,
    algo: str | None = None,
    normalization: str | Normalization | None = None,
    arch: str | None = None,
    store: Store | None = None,
) -> Answer:
    """May this policy run in fewer bits, and what does that cost? What `quarl check` prints, as a value.

    Args:
        policy: As `load_policy` takes it.
        env: Where it plays: a name, a Gymnasium id, `module:name`, a class, a function that makes one, `gym.make(...)`,
            a vector environment, or `model.get_env()`. The default is the policy's own.
        scheme: What `answer.verdict` is about. The default is int8, or w8 of nets that have no form in integers.
        margin: Share of the return that may be lost, above 0 and below 1.
        floor: A return that counts as nothing, as a random policy's, where returns lie around 0.
        episodes: Environment seeds, the same for every scheme.
        env_kwargs: What the environment is made with, as `{"gravity": 5.0}`.
        algo: As of `load_policy`.
        normalization: As of `load_policy`.
        arch: As of `load_policy`.
        store: Keeps what was measured. The default is the user's cache.

    Returns:
        The answer: `print(answer)` gives the command's lines, `answer.verdict` the verdict, `answer.as_dict()` all.

    Raises:
        QuarlError: The policy, the environment or a number is not what it has to be.
    """
    subject = open_subject(
        policy, env, store=store, env_kwargs=env_kwargs, algo=algo, normalization=normalization, arch=arch
    )
    selection = select_schemes(subject, scheme)
    schemes = [Scheme.parse(name) for name in selection.names]
    lines = [*play_schemes(subject, schemes, episodes, margin, floor)]
    return build_answer(subject, name_policy(policy), selection, lines, margin, floor)


def repair(
    policy: Any,
    env: Any = None,
    scheme: str = INT8,
    *,
    margin: float = MARGIN,
    floor: float | None = None,
    episodes: int = EPISODES,
    test: int = 1,
    target: str = "any",
    budget: float = BUDGET,
    seed: int = 0,
    fewest_bytes: bool = False,
    resume: bool = False,
    env_kwargs: Mapping[str, Any] | None = None,
    algo: str | None = None,
    normalization: str | Normalization | None = None,
    arch: str | None = None,
) -> Repair:
    """Another form of a policy that keeps its return in fewer bits: what `quarl repair` prints.

    Args:
        policy: As `load_policy` takes it.
        env: As `check` takes it.
        scheme: `int2` to `int8`; the options of the scheme are what is found.
        margin: Share of the return that may be lost, above 0 and below 1.
        floor: A return that counts as nothing, as a random policy's, where returns lie around 0.
        episodes: Of the one test, on environment seeds that chose nothing.
        test: Which test of this policy it is; each plays episodes of its own.
        target: What has to run it: a backend, as `litert` or `c`, `fpga`, or `any`.
        budget: Seconds for all but the test; distillation takes what is left of them.
        seed: Of what training draws.
        fewest_bytes: Give 4 or 2 bits to layers whose weights do with them.
        resume: Go on where an interrupted repair of the same policy, scheme, target and seed stopped.
        env_kwargs: What the environment is made with, as `{"gravity": 5.0}`.
        algo: As of `load_policy`.
        normalization: As of `load_policy`.
        arch: As of `load_policy`.

    Returns:
        What was tried, and the test: `found.chosen.candidate` has the form's name and its integers (`policy`),
        `found.test.verdict` the verdict.

    Raises:
        QuarlError: The policy, the environment or the scheme is not what it has to be.
    """
    parsed = read_scheme(scheme)
    subject = open_subject(policy, env, env_kwargs=env_kwargs, algo=algo, normalization=normalization, arch=arch)
    plan = Plan(parsed, margin, floor, episodes, test, target, budget, seed, fewest_bytes)
    return repair_policy(subject, plan, cache=default_cache(), resume=resume)
