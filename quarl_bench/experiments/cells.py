"""From a case to its measurement: the policies of a cell, quantized, deployed, played, all through the store."""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from quarl_bench.backends.registry import find_backend
from quarl_bench.environments.registry import Environment, find_environment
from quarl_bench.errors import MissingBaseline, QuarlError, StoreError
from quarl_bench.evaluation.acting import Way
from quarl_bench.evaluation.calibration import calibrate
from quarl_bench.evaluation.measurement_key import DEPLOYED
from quarl_bench.evaluation.protocol import Protocol
from quarl_bench.evaluation.sensitivity import describe_sensitivity, measure_sensitivity
from quarl_bench.experiments.member import FP32, LazyPolicy, find_calibration, measure_ways
from quarl_bench.experiments.store import Store, Train
from quarl_bench.policies.algorithm import is_sampled
from quarl_bench.policies.policy import Policy, PolicyNet, States, deployable
from quarl_bench.policies.storage.folder import Stored
from quarl_bench.policies.storage.fp32 import StoredPolicy
from quarl_bench.quantization.scheme import Scheme, read_scheme
from quarl_bench.spec import LOCAL, ZOO, Case, Measurement, PolicySpec, agree_on_episodes
from quarl_bench.training.multi_seed.recipe import ORIGIN as MANY_SEEDS
from quarl_bench.training.recipes import AWARE, name_reference

EXPLAINED_STATES = 2_000  # of those of calibration, in which layers are compared
NEEDLESS = 8  # bits at which a policy without a repaired form needed none
MOST = 8  # policies of a cell: with eight, cells whose every episode ties can decide
ARGMAX, SAMPLED = Way(), Way(sampled=True)


@dataclass(frozen=True)
class PolicySet:
    """The policies of one cell, in the order of their training seeds."""

    case: Case
    members: tuple[LazyPolicy, ...]
    backend: str = ""  # whose artefacts they are, where they are deployed

    @property
    def policies(self) -> tuple[Policy, ...]:
        """Every policy, built."""
        return tuple(member.policy for member in self.members)


def check_budgets(arms: Sequence[PolicySet]) -> None:
    """StoreError where arms that are compared were trained for different numbers of environment steps."""
    abouts = [member.stored.metadata.get("recipe", {}) for arm in arms for member in arm.members]
    steps = sorted({about["timesteps"] for about in abouts if "timesteps" in about})
    if len(steps) > 1:
        raise StoreError(
            f"{arms[-1].case.id}: compared with policies of other training, {' and '.join(f'{n:,}' for n in steps)} "
            "environment steps; train all for as many"
        )


class Cells:
    """Cells under one protocol, on one store. Artefacts of deployed cells go below `artefacts`."""

    def __init__(self, store: Store, protocol: Protocol, artefacts: Path) -> None:
        self.store, self.protocol, self.artefacts = store, protocol, artefacts
        self._calibrations: dict[str, States] = {}

    def find_policies(self, case: Case, against: str = "") -> PolicySet:
        """The fp32 policies of the cell, trained if missing and allowed.

        Where its scheme is to be compared with another, `against`, those whose training seeds both have. Where it is
        trained for other steps than fp32 is, those of origin `AWARE`.
        """
        seeds, origin = self._find_seeds(case), _name_reference(case)
        if against:
            others = self._find_seeds(replace(case, scheme=against))
            seeds = tuple(seed for seed in seeds if seed in others) or seeds
        members = []
        for seed in seeds:
            stored = self.store.policy(PolicySpec(case.algo, case.environment, seed, origin))
            members.append(LazyPolicy(stored, _returning(stored.policy)))
        return PolicySet(Case(case.algo, case.environment, FP32, origin), tuple(members))

    def quantize(self, policies: PolicySet, scheme: Scheme | str) -> PolicySet:
        """The cell under `scheme`, in the form that leaves a simulation: integers for int<n>.

        StoreError where policies that were trained under it were trained longer, or less long, than those in fp32.
        """
        scheme = read_scheme(scheme)
        case = Case(policies.case.algo, policies.case.environment, scheme.name, policies.case.origin)
        if scheme.trained:
            seeds = tuple(member.stored.metadata.get("seed", index) for index, member in enumerate(policies.members))
            trained = self.find_trained(replace(case, origin="") if case.origin == AWARE else case, seeds)
            check_budgets((policies, trained))
            return trained

        if scheme.repaired:
            return PolicySet(case, self._find_repaired(policies, scheme))

        def quantizing(stored: Stored) -> Callable[[], Policy]:
            return lambda: self._quantize(stored, scheme, environment_for(stored, case))

        return PolicySet(
            case, tuple(LazyPolicy(member.stored, quantizing(member.stored)) for member in policies.members)
        )

    def find_trained(self, case: Case, seeds: Sequence[int] = ()) -> PolicySet:
        """The cell's policies, trained under its scheme, with or without fp32 ones; of these seeds, or all."""
        return PolicySet(case, tuple(self._find_integers(case, seed) for seed in seeds or self._find_seeds(case)))

    def deploy(self, policies: PolicySet, board: str = LOCAL, backend: str = DEPLOYED) -> PolicySet:
        """The cell as artefacts of `backend`, their golden pairs re-run, loaded again from their folders."""
        if board != LOCAL:
            raise QuarlError(f"unknown board {board!r}; known is {LOCAL} (this machine)")
        from quarl_bench.backends.deployed import load_artefact
        from quarl_bench.backends.export import export_policy

        name = find_backend(backend).name
        case = Case(policies.case.algo, policies.case.environment, policies.case.scheme, policies.case.origin, board)

        def deploying(member: LazyPolicy) -> Callable[[], Policy]:
            def build() -> Policy:
                folder = self.artefacts / f"{case.id}-{name}-{member.stored.sha256[:12]}"
                observations = self.calibrate(member.stored, environment_for(member.stored, case))
                sha256 = member.stored.sha256
                export_policy(
                    member.policy, folder, observations, scheme=case.scheme, source_sha256=sha256, backend=name
                )
                return load_artefact(folder)

            return build

        members = tuple(LazyPolicy(member.stored, deploying(member)) for member in policies.members)
        return PolicySet(case, members, name)

    def measure(self, policies: PolicySet) -> Measurement:
        """Returns of every policy of the cell on the protocol's environment seeds, and agreement with fp32.

        Where the claim has to hold with sampled actions as well, those are in `sampled`.
        """
        case, environment = policies.case, find_environment(policies.case.environment)
        asked = [(self.protocol.list_seeds(environment), ARGMAX)]
        if is_sampled(
            case.algo, atari=environment.atari
        ):  # chance makes every episode another: no starts are to be met
            asked.append((asked[0][0][: self.protocol.episodes], SAMPLED))
        scheme = Scheme.parse(case.scheme)
        each = [
            measure_ways(
                self.store,
                member,
                self.protocol.shorten(environment_for(member.stored, case)),
                asked,
                scheme=member.scheme or scheme,
                board=case.board,
                backend=policies.backend,
                reference=member.reference,
            )
            for member in policies.members
        ]
        argmax, *sampled = [_join(measured) for measured in zip(*each, strict=True)]
        return replace(argmax, sampled=sampled[0]) if sampled else argmax

    def calibrate(self, stored: Stored, environment: Environment) -> States:
        """The states (n, ...) on which the policy's integer forms are calibrated; visited once, then kept.

        Those of a recurrent policy are visited once by every process.
        """
        if stored.sha256 not in self._calibrations:
            found = find_calibration(self.store, stored, environment, lambda: calibrate(stored.policy, environment))
            self._calibrations[stored.sha256] = found
        return self._calibrations[stored.sha256]

    def explain(self, policies: PolicySet, scheme: Scheme | str) -> list[str]:
        """Which layers of the first policy lose what at the scheme's bits, a line each; `policies` are fp32 ones."""
        stored = policies.members[0].stored
        if not isinstance(stored.policy, PolicyNet):
            return []
        bits = read_scheme(scheme).bit_width
        states = self.calibrate(stored, environment_for(stored, policies.case))[:EXPLAINED_STATES]
        return [describe_sensitivity(found, bits) for found in measure_sensitivity(stored.policy, bits, states)]

    def _find_repaired(self, policies: PolicySet, scheme: Scheme) -> tuple[LazyPolicy, ...]:
        """The repaired form of each policy; at 8 bits its plain one where none is kept, because it needed none.

        MissingBaseline where fewer bits have no form.
        """
        plain, members = replace(scheme, repaired=False), []
        for index, fallback in enumerate(self.quantize(policies, plain).members):
            stored, case = fallback.stored, policies.case
            spec = PolicySpec(case.algo, case.environment, stored.metadata.get("seed", index), case.origin)
            found = self.store.find_repaired(spec, plain.name, stored.sha256)
            if found is None and plain.bit_width < NEEDLESS:
                raise MissingBaseline(f"{spec.name} has no repaired {plain.name} form; make one by `quarl repair`")
            if found is None or not isinstance(stored, StoredPolicy):
                members.append(replace(fallback, scheme=plain))
            else:
                members.append(LazyPolicy(found, _returning(found.policy), Scheme.parse(FP32), stored))
        return tuple(members)

    def _find_integers(self, case: Case, seed: int) -> LazyPolicy:
        stored = self.store.integers(PolicySpec(case.algo, case.environment, seed, case.origin, case.scheme))
        return LazyPolicy(stored, _returning(stored.policy))

    def _find_seeds(self, case: Case) -> tuple[int, ...]:
        """Training seeds of a cell: those that are there, or the protocol's where they may be trained; at most `MOST`.

        Those that were trained many at once count all: their sentences ask for ten. A trained scheme is compared with
        fp32 policies of the same training seeds, where there are any. Of few bits those count that were repaired.
        """
        spec, scheme = PolicySpec(case.algo, case.environment, 0, case.origin), Scheme.parse(case.scheme)
        there = self.store.find_seeds(replace(spec, origin=_name_reference(case)))
        if scheme.repaired and scheme.bit_width < NEEDLESS:
            plain = replace(scheme, repaired=False).name
            kept = [seed for seed in there if self.store.place_repaired(replace(spec, seed=seed), plain) is not None]
            return tuple(kept or there)[:MOST]
        if scheme.trained:
            trained = self.store.find_seeds(replace(spec, scheme=case.scheme))
            there = tuple(seed for seed in trained if seed in there or not there)
        wanted = 1 if case.origin == ZOO or self.store.train is Train.NEVER else self.protocol.policies
        others = (seed for seed in itertools.count() if seed not in there)
        seeds = sorted((*there, *itertools.islice(others, max(wanted - len(there), 0))))
        return tuple(seeds if case.origin.startswith(MANY_SEEDS) else seeds[:MOST])

    def _quantize(self, stored: Stored, scheme: Scheme, environment: Environment) -> Policy:
        if not isinstance(stored.policy, PolicyNet):
            raise QuarlError(f"{stored.sha256[:12]} holds integers already; quantize an fp32 policy")
        observations = self.calibrate(stored, environment) if scheme.integer and scheme.calibrated else None
        return deployable(stored.policy.quantize(scheme, observations))


def _name_reference(case: Case) -> str:
    """The origin of the fp32 policies of a cell."""
    trained = Scheme.parse(case.scheme).trained
    return name_reference(case.algo, case.environment, case.origin) if trained else case.origin


def environment_for(stored: Stored, case: Case) -> Environment:
    """The case's environment as the policy saw it in training."""
    return replace(find_environment(case.environment), time_feature=bool(stored.metadata.get("time_feature", False)))


def _join(single: Sequence[Measurement]) -> Measurement:
    """The measurement of a cell, from one of each of its policies."""
    first = single[0]
    agreements = [m.agreement for m in single if m.agreement is not None]
    return Measurement(
        policies=tuple(m.policies[0] for m in single),
        environment_seeds=first.environment_seeds,
        episodes=agree_on_episodes(first.environment_seeds, [m.episodes for m in single]),
        returns=tuple(m.returns[0] for m in single),
        lengths=tuple(m.lengths[0] for m in single),
        agreement=tuple(a[0] for a in agreements) if agreements else None,
        deterministic=first.deterministic,
        starts=first.starts,
    )


def _returning(policy: Policy) -> Callable[[], Policy]:
    return lambda: policy
