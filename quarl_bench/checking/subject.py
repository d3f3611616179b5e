"""The policy that is checked: quantized, played and exported on demand."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from quarl_bench.backends.deployed import DeployedPolicy
from quarl_bench.backends.export import export_policy
from quarl_bench.checking.random_play import build_random_key, play_randomly
from quarl_bench.environments.registry import Environment
from quarl_bench.errors import QuantizationError, SpecError
from quarl_bench.evaluation.episode_bars import show_calibration, show_episodes
from quarl_bench.evaluation.rollouts import measure
from quarl_bench.experiments.member import FP32, LazyPolicy, find_calibration, measure_member
from quarl_bench.experiments.policy_source import BASELINES, NO_POLICY, PolicySource, open_task
from quarl_bench.experiments.store import Store, StorePaths
from quarl_bench.policies.policy import Observations, Policy, States, Visited, deployable
from quarl_bench.policies.storage.fp32 import StoredPolicy
from quarl_bench.policies.storage.integers import StoredIntegers
from quarl_bench.quantization.net import refuse_branches
from quarl_bench.quantization.scheme import Scheme, read_scheme
from quarl_bench.spec import Measurement
from quarl_bench.system.bars import INSIDE
from quarl_bench.system.places import default_cache


class Subject:
    """A policy to be checked, quantized on demand and calibrated once; `store` keeps what was measured, if given.

    `shown` says whether bars show how far it is; None leaves that to the terminal.

    Attributes:
        stored: The fp32 policy (`stored.policy`) and the hash of its weights (`stored.sha256`).
        environment: Where it plays.
    """

    def __init__(
        self, stored: StoredPolicy, environment: Environment, store: Store | None = None, *, shown: bool | None = False
    ) -> None:
        self.stored, self.environment, self.shown = stored, environment, shown
        self.store = None if environment.custom else store  # a user's environment may change between two runs
        self._calibration: States | None = None
        self._quantized: dict[str, Policy] = {}
        self._played: dict[tuple[str, str, tuple[int, ...]], Measurement] = {}  # where no store keeps it

    @property
    def calibration(self) -> States:
        """Raw observations that the fp32 policy visits, on environment seeds that never score it."""
        if self._calibration is None:
            visit = partial(show_calibration, self.stored.policy, self.environment, self.shown)
            self._calibration = find_calibration(self.store, self.stored, self.environment, visit)
        return self._calibration

    @property
    def observations(self) -> Observations:
        """The same of a policy without a state, which is a chain; QuantizationError or PolicyError for another one."""
        refuse_branches(self.stored.policy.net, "quarl repair")
        if isinstance(self.calibration, Visited):
            raise QuantizationError("a recurrent policy is not repaired: distillation knows no state; try more bits")
        return self.calibration

    def quantize(self, scheme: Scheme | str) -> Policy:
        """The policy under `scheme`, as integers for `int<bits>`; `act` takes raw observations (n, *shape).

        QuantizationError where it has no form in that scheme, SpecError for a scheme that does not exist.
        """
        scheme = read_scheme(scheme)
        if scheme.name not in self._quantized:
            calibrated = scheme.integer and scheme.calibrated
            quantized = self.stored.policy.quantize(scheme, self.calibration if calibrated else None)
            self._quantized[scheme.name] = deployable(quantized)
        return self._quantized[scheme.name]

    def find_refused(self, schemes: Sequence[Scheme]) -> dict[str, str]:
        """Those in which the policy has no form, and why; found out before anything is played."""
        refused = {}
        for scheme in schemes:
            try:
                self.quantize(scheme)
            except QuantizationError as error:
                refused[scheme.name] = str(error)
        return refused

    def play(self, scheme: Scheme | str, seeds: Sequence[int]) -> Measurement:
        """Its returns under `scheme`, one episode per environment seed."""
        scheme = read_scheme(scheme)
        if self.store is not None:
            member = LazyPolicy(self.stored, lambda: self.quantize(scheme))
            return measure_member(self.store, member, self.environment, seeds, scheme=scheme, shown=self.shown)
        references = None if scheme.name == FP32 else [self.stored.policy]
        return self._measure(self.stored.sha256, self.quantize(scheme), seeds, references, scheme.name)

    def play_integers(self, integers: StoredIntegers, seeds: Sequence[int], name: str = "integers") -> Measurement:
        """Returns of integers that came from this policy, one episode per environment seed; a bar calls them `name`."""
        if self.store is not None:
            member = LazyPolicy(integers, lambda: integers.policy)
            return measure_member(
                self.store, member, self.environment, seeds, scheme=Scheme.parse(FP32), reference=self.stored,
                name=name, shown=self.shown,
            )  # fmt: skip
        return self._measure(integers.sha256, integers.policy, seeds, [self.stored.policy], name)

    def play_randomly(self, seeds: Sequence[int]) -> Measurement:
        """Returns of random actions on the first of the environment seeds."""
        play = partial(play_randomly, self.stored.policy, self.environment, seeds)
        if self.store is None:
            return play()
        return self.store.measurement(build_random_key(self.stored, self.environment, seeds), play)

    def _measure(
        self, sha256: str, policy: Policy, seeds: Sequence[int], references: Sequence[Policy] | None, name: str
    ) -> Measurement:
        key = name, sha256, tuple(seeds)
        if key not in self._played:
            with show_episodes(policy, self.environment, seeds, name, shown=self.shown, delay=INSIDE) as playing:
                self._played[key] = measure([(sha256, playing)], self.environment, seeds, references)
        return self._played[key]

    def export(self, scheme: str, backend: str, folder: Path) -> DeployedPolicy:
        """Write the artefact of one scheme to `folder`, and run its golden pairs again.

        A folder that holds an artefact is replaced. Raises DeploymentError where the backend has no form of the scheme,
        or gives another action than the quantized policy; MissingExtra where its runtime is not installed.
        """
        policy, sha256 = self.quantize(scheme), self.stored.sha256
        return export_policy(policy, folder, self.calibration, scheme=scheme, source_sha256=sha256, backend=backend)


def open_subject(
    policy: Any,
    env: Any = None,
    *,
    store: Store | None = None,
    algo: str | None = None,
    normalization: Any = None,
    arch: str | None = None,
    env_kwargs: Mapping[str, Any] | None = None,
    baselines: Path = BASELINES,
) -> Subject:
    """A policy and its task as `quarl_bench.check` takes them; QuarlError for what cannot be checked.

    `store` keeps what was measured; None is the user's own cache.
    """
    stored, environment = open_task(name_source(policy, env, algo, normalization, arch, env_kwargs, baselines))
    return Subject(stored, environment, store or Store(StorePaths(default_cache())))


def name_source(
    policy: Any,
    env: Any = None,
    algo: str | None = None,
    normalization: Any = None,
    arch: str | None = None,
    env_kwargs: Mapping[str, Any] | None = None,
    baselines: Path = BASELINES,
) -> PolicySource:
    """What a caller holds or names as the source of a policy, whichever it is; nothing is read yet."""
    live = None if isinstance(policy, str | Path) else policy
    if policy is None:
        raise SpecError(NO_POLICY.format("None"))
    named = Path(policy if live is None else name_policy(policy))
    return PolicySource(named, env, algo, normalization, arch, baselines, live, env_kwargs)


def name_policy(policy: Any) -> str:
    """What messages call a policy: the last part of a path, or the class of a live one."""
    return Path(policy).name if isinstance(policy, str | Path) else type(policy).__name__
