"""The policies of Table 4 as artefacts: three sizes of one net that flies a quadrotor.

Where no trained policy is there, random weights of the same size stand in: a time depends on sizes, not on values.
"""

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from quarl_bench.backends.export import export_policy
from quarl_bench.errors import MissingBaseline, MissingExtra, SpecError
from quarl_bench.experiments.cells import Cells, environment_for
from quarl_bench.policies.head import ActionHead, HeadKind
from quarl_bench.policies.observation import ObservationTransform
from quarl_bench.policies.policy import Observations, PolicyNet, States, deployable
from quarl_bench.quantization.activations import Activation
from quarl_bench.quantization.net import Linear, Net
from quarl_bench.quantization.scheme import Scheme
from quarl_bench.spec import Case, PolicySpec

HIDDEN = {
    "quadx1": (64, 64, 64),  # Policies I, II, III
    "quadx2": (256, 256, 256),
    "quadx3": (4096, 512, 1024),
    "quadxl": (3400, 3400),  # ours: 47 MB in fp32, 12 MB in int8, more than the process that runs them
}
OBSERVATION, ACTIONS = 24, 4  # of PyFlyt's QuadX-Waypoints with one target
STATES = 1000  # random ones, for random weights
SEED = 20191001
NO_SOURCE = "0" * 64  # random weights come from no stored policy


@dataclass(frozen=True)
class FlightPair:
    """Folders of the fp32 and the int8 artefact of one policy."""

    fp32: Path
    int8: Path
    trained: bool


def export_flight(cells: Cells, case: Case) -> FlightPair:
    """Export the policy of `case` as LiteRT artefacts below the artefacts of `cells`."""
    try:
        stored = cells.store.policy(PolicySpec(case.algo, case.environment, 0, case.origin))
        policy, sha256, trained = stored.policy, stored.sha256, True
        observations = cells.calibrate(stored, environment_for(stored, case))
    except (MissingBaseline, MissingExtra, SpecError):
        policy, sha256, trained = find_random_policy(case.environment), NO_SOURCE, False
        observations = draw_observations(STATES)
    folder = cells.artefacts / f"{PolicySpec(case.algo, case.environment, 0, case.origin).name}-{sha256[:12]}"
    fp32, int8 = export_both(policy, observations, folder, scheme=case.scheme, source_sha256=sha256)
    return FlightPair(fp32, int8, trained)


def export_both(
    policy: PolicyNet,
    observations: States,
    folder: Path,
    *,
    scheme: str = "int8",
    source_sha256: str = NO_SOURCE,
    backend: str = "litert",
) -> tuple[Path, Path]:
    """Export `policy` in fp32 and under an integer scheme, calibrated on `observations`; folders of both."""
    for name in ("fp32", scheme):
        parsed = Scheme.parse(name)
        quantized = deployable(policy.quantize(parsed, observations if parsed.integer else None))
        export_policy(quantized, folder / name, observations, scheme=name, source_sha256=source_sha256, backend=backend)
    return folder / "fp32", folder / scheme


def find_random_policy(environment: str) -> PolicyNet:
    """Random weights in the widths of `environment`'s policy; SpecError for another environment."""
    if environment not in HIDDEN:
        raise SpecError(f"no flight policy for {environment!r}; known are {', '.join(HIDDEN)}")
    return make_random_policy(HIDDEN[environment])


def make_random_policy(hidden: tuple[int, ...]) -> PolicyNet:
    """Seeded random weights of a flight policy with these hidden layers."""
    rng = np.random.default_rng(SEED)
    widths = (OBSERVATION, *hidden, ACTIONS)
    layers = tuple(
        Linear(
            (rng.standard_normal((outputs, inputs)) / np.sqrt(inputs)).astype(np.float32),
            np.zeros(outputs, np.float32),
            Activation.NONE if index == len(widths) - 2 else Activation.RELU,
        )
        for index, (inputs, outputs) in enumerate(pairwise(widths))
    )
    bound = np.ones(ACTIONS, np.float32)
    head = ActionHead(HeadKind.CLIP, -bound, bound)
    return PolicyNet(ObservationTransform((OBSERVATION,)), Net((OBSERVATION,), layers), head)


def draw_observations(count: int) -> Observations:
    """Standard normal observations (count, OBSERVATION)."""
    return np.random.default_rng(SEED + 1).standard_normal((count, OBSERVATION)).astype(np.float32)
