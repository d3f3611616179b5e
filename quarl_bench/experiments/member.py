"""One policy of a cell: its measurement, and the states that calibrate it, through the store."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import cast

from quarl_bench.backends.registry import BACKENDS
from quarl_bench.environments.registry import Environment
from quarl_bench.evaluation.acting import Way
from quarl_bench.evaluation.episode_bars import show_episodes
from quarl_bench.evaluation.measurement_key import build_calibration_key, build_key
from quarl_bench.evaluation.rollouts import Request, measure_all
from quarl_bench.experiments.store import Store
from quarl_bench.policies.policy import Observations, Policy, States
from quarl_bench.policies.storage.folder import Stored
from quarl_bench.policies.storage.fp32 import StoredPolicy
from quarl_bench.quantization.scheme import Scheme
from quarl_bench.spec import Measurement
from quarl_bench.system.bars import INSIDE

FP32 = "fp32"


@dataclass(frozen=True)
class LazyPolicy:
    """One policy of a cell under its scheme; built only when it has to act.

    `scheme` is its own, where that is not the cell's. Of integers that came from an fp32 policy, that is `reference`.
    """

    stored: Stored
    build: Callable[[], Policy]
    scheme: Scheme | None = None
    reference: StoredPolicy | None = None

    @cached_property
    def policy(self) -> Policy:
        """The quantized, or deployed, policy."""
        return self.build()


def find_calibration(
    store: Store | None, stored: Stored, environment: Environment, visit: Callable[[], States]
) -> States:
    """The states (n, ...) on which integer forms of a policy are calibrated; `visit` visits them once, then kept.

    Those of a recurrent policy are not kept.
    """
    if store is None or stored.policy.recurrent:
        return visit()
    key = build_calibration_key(stored.sha256, environment)
    return store.states(key, lambda: cast("Observations", visit()))


def measure_member(
    store: Store,
    member: LazyPolicy,
    environment: Environment,
    seeds: Sequence[int],
    *,
    scheme: Scheme,
    sampled: bool = False,
    sigma: float = 0.0,
    name: str = "",
    shown: bool | None = False,
    reference: StoredPolicy | None = None,
) -> Measurement:
    """One policy under `scheme` on consecutive environment seeds, measured now or found under what decides it.

    `sigma` is the SD of noise on the net's inputs, in which nothing is asked to agree. `reference` is the fp32 policy
    that integers came from, where their actions are compared with its own. `shown` says whether a bar of episodes is,
    and None leaves it to the terminal; it has a `name`, the scheme's by default.
    """
    asked = [(seeds, Way(sampled=sampled, sigma=sigma))]
    (found,) = measure_ways(
        store, member, environment, asked, scheme=scheme, name=name, shown=shown, reference=reference
    )
    return found


def measure_ways(
    store: Store,
    member: LazyPolicy,
    environment: Environment,
    asked: Sequence[tuple[Sequence[int], Way]],
    *,
    scheme: Scheme,
    board: str = "",
    backend: str = "",
    name: str = "",
    shown: bool | None = False,
    reference: StoredPolicy | None = None,
) -> list[Measurement]:
    """The same in several ways, each on seeds of its own, played together where they can be; on a board as well.

    A backend from outside this package is measured each time: nothing says when its code has changed.
    """
    noise = any(way.sigma for _, way in asked)
    # What is not an fp32 policy's own has no fp32 action to agree with.
    own = isinstance(member.stored, StoredPolicy) and (scheme.name != FP32 or board) and not noise
    references = [member.stored.policy] if own else None if reference is None else [reference.policy]

    sha256 = member.stored.sha256
    # At 16 bits a policy plays most episodes of its fp32 one, which then need not be played again.
    among_own = not environment.custom and isinstance(member.stored, StoredPolicy) and not (board or noise)
    requests = [
        Request(seeds, way, store.share_episodes(sha256, environment, sampled=way.sampled) if among_own else None)
        for seeds, way in asked
    ]

    def play(places: Sequence[int]) -> list[Measurement]:
        wanted = [requests[place] for place in places]
        seeds, noisy = wanted[0].seeds, wanted[0].way.noisy
        visible = shown if len(wanted) == 1 else False
        with show_episodes(
            member.policy, environment, seeds, name or scheme.name, sampled=noisy, shown=visible, delay=INSIDE
        ) as playing:
            return measure_all([(sha256, playing)], environment, wanted, references)

    if backend and backend not in BACKENDS.own:
        return play(range(len(requests)))
    parts = {} if reference is None else {"reference": reference.sha256}
    keys = [
        build_key(
            sha256,
            environment,
            seeds,
            scheme=scheme,
            board=board,
            backend=backend,
            sampled=way.sampled,
            sigma=way.sigma,
        )
        | parts
        for seeds, way in asked
    ]
    return store.measurements(keys, play)
