"""What decides a measurement: the key under which it is stored, and the versions that it depends on."""

import functools
from collections.abc import Sequence
from typing import Any

from quarl_bench.backends.registry import find_backend
from quarl_bench.environments.atari.games import PRESET
from quarl_bench.environments.registry import Environment, find_environment
from quarl_bench.evaluation.calibration import count_calibration
from quarl_bench.evaluation.protocol import CALIBRATION_SEEDS
from quarl_bench.quantization.scheme import Scheme
from quarl_bench.spec import Case
from quarl_bench.system.code_epoch import hash_code
from quarl_bench.system.extras import read_version

EVALUATION_CODE = (
    "quantization/net.py",
    "policies/head.py",
    "policies/masks.py",
    "policies/observation.py",
    "policies/policy.py",
    "quantization/activations.py",
    "quantization/affine.py",
    "quantization/branches.py",
    "quantization/carried.py",
    "quantization/equalization.py",
    "quantization/fake_quantized.py",
    "quantization/integer.py",
    "quantization/learned.py",
    "quantization/calibration/formats.py",
    "quantization/calibration/observers.py",
    "quantization/parameters.py",
    "quantization/products/packed.py",
    "quantization/ptq.py",
    "quantization/calibration/ranges.py",
    "quantization/recurrent/cells.py",
    "quantization/recurrent/quantized.py",
    "quantization/recurrent/ranges.py",
    "quantization/requantize.py",
    "quantization/scheme.py",
    "quantization/products/sums.py",
    "quantization/training/stacked_nets.py",
    "environments/registry.py",
    "environments/environments.toml",
)
EVALUATION_LOOP = (
    "environments/atari/bands.c",
    "environments/atari/bands.py",
    "environments/atari/games.py",
    "environments/atari/screens.py",
    "environments/bullet.py",
    "environments/catch.py",
    "environments/classic_control.py",
    "environments/drone.py",
    "environments/encoding.py",
    "environments/flights.py",
    "environments/hidden_velocities.py",
    "environments/images.py",
    "environments/locomotion.py",
    "environments/masking.py",
    "environments/stopwatch.py",
    "environments/wrappers.py",
    "evaluation/acting.py",
    "evaluation/agreement.py",
    "evaluation/calibration.py",
    "evaluation/batches/crossings.py",
    "evaluation/batches/episodes.py",
    "evaluation/batches/games.py",
    "evaluation/batches/masks.py",
    "evaluation/noise.py",
    "evaluation/protocol.py",
    "evaluation/rollouts.py",
    "evaluation/batches/walks.py",
    "spec.py",
    "system/compiler.py",
)
LIBRARIES = {  # that decide what an environment does, by the extra that brings it
    "atari": ("ale-py", "opencv-python-headless"),
    "box2d": ("box2d",),
    "bullet": ("pybullet", "pybullet-envs-gymnasium"),
    "dmc": ("dm-control", "mujoco", "shimmy"),
    "mujoco": ("mujoco",),
    "navigation": ("PyFlyt", "pybullet", "numba"),
}
DEPLOYED = "litert"  # the backend of a cell on a board, where none is named


def build_key(
    sha256: str,
    environment: Environment,
    seeds: Sequence[int],
    *,
    scheme: Scheme,
    board: str = "",
    backend: str = "",
    sampled: bool = False,
    sigma: float = 0.0,
) -> dict[str, Any]:
    """All that decides what a policy under `scheme` returns on consecutive environment seeds."""
    named = {"backend": backend} if backend not in ("", DEPLOYED) else {}
    limited = {} if environment.patience is None else {"patience": environment.patience}
    return (
        named
        | limited
        | build_calibration_key(sha256, environment, board, backend)
        | {
            "scheme": scheme.name,
            "sampled": sampled,
            "sigma": sigma,
            "board": board,
            "seeds": [seeds[0], len(seeds)],
        }
    )


def build_calibration_key(sha256: str, environment: Environment, board: str = "", backend: str = "") -> dict[str, Any]:
    """All that decides which states calibrate a policy, and the versions of where its integers run."""
    return {
        "policy": sha256,
        "environment": environment.id,
        "time_feature": environment.time_feature,
        "preprocessing": name_preprocessing(environment),
        "calibration": [CALIBRATION_SEEDS, count_calibration(environment)],
        "code": evaluation_epoch(board),
        "versions": _list_versions(environment, board, backend),
    }


def evaluation_epoch(board: str = "") -> str:
    """The hash of all code that decides a measurement, here or on a board."""
    return hash_code(*EVALUATION_CODE, *EVALUATION_LOOP, *(("backends",) if board else ()))


def name_preprocessing(environment: Environment) -> str:
    """What stands between the environment and the policy's observation."""
    if environment.atari:
        return PRESET
    return "time-feature" if environment.time_feature else "none"


def runtime_versions(case: Case) -> dict[str, str]:
    """Public versions of the libraries that a number of this case depends on; builds of one version count as one."""
    return _list_versions(find_environment(case.environment), case.board, "")


def _list_versions(environment: Environment, board: str, backend: str) -> dict[str, str]:
    names = ["torch", "numpy", "gymnasium", *LIBRARIES.get(environment.extra, ())]
    names += find_backend(backend or DEPLOYED).distributions if board else []
    return {name: _read_public_version(name) for name in names}


@functools.cache
def _read_public_version(name: str) -> str:
    """Of a library that this process runs; reading it takes a millisecond, and every measurement asks for three."""
    return (read_version(name) or "absent").partition("+")[0]
