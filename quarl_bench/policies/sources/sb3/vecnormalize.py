"""Observation statistics from a pickled VecNormalize, read without unpickling it."""

import os
import re
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from quarl_bench.errors import PolicyError
from quarl_bench.policies.observation import Normalization
from quarl_bench.policies.sources.archive import read_file
from quarl_bench.policies.sources.inert_pickle import Call, Name, read_pickle
from quarl_bench.policies.sources.sb3.zoo_config import CONFIG, Training

FROM_FOLDER: Final = "from the folder beside the zip"
STATISTICS = "vecnormalize.pkl"
ORIGINAL = "_last_original_obs"  # None where no VecNormalize was there in training
REPLAY = "replay_buffer_class"  # of algorithms that learn from one
LIMIT = 2**23
VEC_NORMALIZE = "stable_baselines3.common.vec_env.vec_normalize.VecNormalize"
RUNNING_MEAN_STD = "stable_baselines3.common.running_mean_std.RunningMeanStd"
NUMPY = ("numpy.core", "numpy._core")
RECONSTRUCT = {f"{module}.multiarray._reconstruct" for module in NUMPY}
FROM_BUFFER = {f"{module}.numeric._frombuffer" for module in NUMPY}
SPACES = {
    f"{gym}.spaces.{module}.{name}"
    for gym in ("gym", "gymnasium")
    for module, name in (
        ("box", "Box"),
        ("discrete", "Discrete"),
        ("dict", "Dict"),
        ("multi_discrete", "MultiDiscrete"),
        ("multi_binary", "MultiBinary"),
    )
}
RANDOM = {
    f"numpy.random.{name}"
    for name in (
        "_pickle.__randomstate_ctor",
        "_pickle.__generator_ctor",
        "_pickle.__bit_generator_ctor",
        "_mt19937.MT19937",
        "_pcg64.PCG64",
        "bit_generator.SeedSequence",
        "bit_generator.__pyx_unpickle_SeedSequence",
    )
}
KNOWN = frozenset(
    {VEC_NORMALIZE, RUNNING_MEAN_STD, "numpy.dtype", "numpy.ndarray", "collections.OrderedDict", "_codecs.encode"}
    | RECONSTRUCT
    | FROM_BUFFER
    | {f"{module}.multiarray.scalar" for module in NUMPY}
    | SPACES
    | RANDOM
)
PartStatistics = dict[str, Normalization]  # of the parts of a Dict, by name
NUMBERS = re.compile(r"f[248]|[iu][1248]")


def read_statistics(path: Path) -> Normalization | None:
    """What `VecNormalize.save` wrote, None when it does not normalize observations; PolicyError for anything else."""
    found = read_any_statistics(path)
    if isinstance(found, dict):
        raise PolicyError(f"{path}: statistics of a Dict, which belong to the zip of its policy; pass them with that")
    return found


def read_any_statistics(path: Path) -> Normalization | PartStatistics | None:
    """The same, and of a Dict the statistics of the parts that have some."""
    tree = read_pickle(read_file(path, LIMIT), KNOWN, str(path))
    if not isinstance(tree, Call) or tree.name != VEC_NORMALIZE or not isinstance(tree.state, dict):
        raise PolicyError(f"{path}: not a pickled VecNormalize; save the statistics with VecNormalize.save")
    try:
        return _read_state(tree.state)
    except PolicyError as error:
        raise PolicyError(f"{path}: {error}") from error
    except (LookupError, TypeError, ValueError, OverflowError) as error:
        raise PolicyError(f"{path}: the statistics are ill-formed ({type(error).__name__}); restore it") from error


def find_statistics(
    folder: Path, training: Training, given: Normalization | Path | str | None, where: str, signs: str
) -> Normalization | PartStatistics | None:
    """Those that are given, or that lie in the folder beside a zip; PolicyError where `signs` show that some lack."""
    if isinstance(given, Path):
        return read_any_statistics(given)
    if not isinstance(given, str):
        return given
    if given != FROM_FOLDER:
        raise PolicyError(f"normalization={given[:40]!r} is neither statistics nor a path nor None")
    present = os.path.lexists(folder / STATISTICS)
    if training.normalized is None and not present and signs:
        raise PolicyError(
            f"{where}: trained on normalized observations, it seems ({signs}), and its statistics are not in it: pass "
            "--normalization FILE, the saved VecNormalize (in Python normalization=), or --normalization none"
        )
    if training.normalized and not present:
        raise PolicyError(
            f"{where}: trained on normalized observations, but {folder.name}/{STATISTICS} is missing; without it the "
            "policy is unknown: restore it, or pass normalization"
        )
    if training.normalized is False and present:
        raise PolicyError(
            f"{where}: {folder.name}/{CONFIG} says raw observations, but {STATISTICS} lies beside it: pass "
            "normalization"
        )
    return read_any_statistics(folder / STATISTICS) if present else None


def list_signs(folder: Path, settings: dict[str, Any]) -> str:
    """What shows that a zip without the folder beside it had statistics; empty where nothing does.

    stable-baselines3 keeps an observation beside its normalized form while a VecNormalize is around the environment;
    algorithms with a replay buffer keep one always.
    """
    near = sorted(path.name for path in folder.parent.glob("*.pkl") if "normalize" in path.name)
    signs = [f"{', '.join(near)} beside it"] if near else []
    kept = settings.get(ORIGINAL, "missing")
    if kept is not None and REPLAY not in settings:
        signs.insert(0, f"its {ORIGINAL} is {'missing' if kept == 'missing' else 'there'}")
    return " and ".join(signs)


def _read_state(state: dict[Any, Any]) -> Normalization | PartStatistics | None:
    if not state["norm_obs"]:
        return None
    statistics = state["obs_rms"]
    if isinstance(statistics, dict) and statistics:
        return {str(name): _read_one(one, state) for name, one in statistics.items()}
    return _read_one(statistics, state)


def _read_one(statistics: Any, state: dict[Any, Any]) -> Normalization:
    if not isinstance(statistics, Call) or statistics.name != RUNNING_MEAN_STD:
        raise TypeError("no RunningMeanStd")
    mean, variance = (read_array(statistics.state[key]).astype(np.float64) for key in ("mean", "var"))
    return Normalization(mean, variance, _read_number(state["clip_obs"]), _read_number(state["epsilon"]))


def read_array(tree: Any) -> NDArray[Any]:
    """The numbers that a pickled array holds; TypeError or ValueError when it is none."""
    if not isinstance(tree, Call):
        raise TypeError("no array")
    if tree.name in RECONSTRUCT:
        _, shape, dtype, fortran, data = tree.state
    elif tree.name in FROM_BUFFER:
        data, dtype, shape, order = tree.args
        fortran = order == "F"
    else:
        raise TypeError("no array")
    if isinstance(data, Call) and data.name == "_codecs.encode":  # protocol 2 has no bytes
        text, encoding = data.args
        if encoding != "latin1":
            raise ValueError("bytes in another encoding than latin1")
        data = text.encode("latin1")
    if not isinstance(data, bytes | bytearray) or not all(type(n) is int and n >= 0 for n in shape):
        raise TypeError("no bytes, or no shape")
    flat = np.frombuffer(bytes(data), _read_dtype(dtype))
    return flat.reshape(shape, order="F" if fortran else "C")


def _read_dtype(tree: Any) -> np.dtype[Any]:
    if not isinstance(tree, Call) or tree.name != "numpy.dtype":
        raise TypeError("no dtype")
    code, order = tree.args[0], tree.state[1]
    if not isinstance(code, str) or not NUMBERS.fullmatch(code) or order not in {"<", ">", "|", "="}:
        raise TypeError("no numbers")
    return np.dtype(order + code)


def _read_number(value: Any) -> float:
    if isinstance(value, Call) and value.name.endswith(".multiarray.scalar") and not isinstance(value, Name):
        dtype, data = value.args
        return float(np.frombuffer(data, _read_dtype(dtype))[0])
    if not isinstance(value, int | float):
        raise TypeError("no number")
    return float(value)
