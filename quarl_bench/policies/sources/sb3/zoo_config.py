"""What the folder beside a zoo agent says about its training: config.yml (hyperparameters) and args.yml (the call)."""

import os
from collections.abc import Hashable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from quarl_bench.errors import PolicyError
from quarl_bench.policies.sources.archive import read_file

LIMIT = 2**16
CONFIG, ARGS = "config.yml", "args.yml"
TIME_FEATURE = "TimeFeatureWrapper"
TIME_FEATURES = tuple(f"{module}.{TIME_FEATURE}" for module in ("sb3_contrib.common.wrappers", "utils.wrappers"))
PYTHON = "tag:yaml.org,2002:python/"


@dataclass(frozen=True)
class Training:
    """How an agent was trained, as far as it matters to who plays it; None where no file says it."""

    algo: str | None = None
    environment: str | None = None
    time_feature: bool = False
    normalized: bool | None = None
    frames: int = 1  # stacked observations


def read_training(folder: Path) -> Training:
    """The training that `folder` describes; PolicyError for a wrapper or an argument that nothing here reproduces."""
    args, config = _read_mapping(folder / ARGS), _read_mapping(folder / CONFIG)
    if args is not None and args.get("env_kwargs"):
        raise PolicyError(f"{folder / ARGS}: env_kwargs changes the environment, and no listed environment has it")
    algo, environment = ((args or {}).get(key) for key in ("algo", "env"))
    if not isinstance(algo, str | None) or not isinstance(environment, str | None):
        raise PolicyError(f"{folder / ARGS}: algo and env must be text; restore it")
    if config is None:
        return Training(algo, environment)
    frames = config.get("frame_stack") or 1
    if type(frames) is not int:
        raise PolicyError(f"{folder / CONFIG}: frame_stack must be a number; restore it")
    time_feature = _read_wrappers(config.get("env_wrapper"), folder / CONFIG)
    return Training(algo, environment, time_feature, bool(config.get("normalize")), frames)


def _read_wrappers(wrappers: Any, path: Path) -> bool:
    """True for the time feature, which is the one wrapper that is known here."""
    listed = wrappers if isinstance(wrappers, list) else [wrappers] if wrappers else []
    for wrapper in listed:
        if wrapper not in TIME_FEATURES:
            said = wrapper if isinstance(wrapper, str) else "a wrapper with arguments"
            raise PolicyError(f"{path}: unknown env_wrapper {said[:80]!r}; known is {TIME_FEATURE} without arguments")
    if len(listed) > 1:
        raise PolicyError(f"{path}: the time feature was added {len(listed)} times; once is known")
    return bool(listed)


class _InertLoader(yaml.SafeLoader):
    """Plain data, and the two Python types that rl-zoo writes, as lists; every other tag is an error."""

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """No merging: a few nested merges of aliases double until memory ends."""
        if any(key.tag == "tag:yaml.org,2002:merge" for key, _ in node.value):
            raise yaml.YAMLError("merge keys are not read")

    def construct_items(self, node: yaml.Node) -> list[Any]:
        """The items of a list, deeply."""
        if not isinstance(node, yaml.SequenceNode):
            raise yaml.YAMLError("items are missing")
        return self.construct_sequence(node, deep=True)


_InertLoader.add_constructor(PYTHON + "object/apply:collections.OrderedDict", _InertLoader.construct_items)
_InertLoader.add_constructor(PYTHON + "tuple", _InertLoader.construct_items)


def _read_mapping(path: Path) -> dict[str, Any] | None:
    """A mapping, written plainly or as an OrderedDict; None when there is no file."""
    if not os.path.lexists(path):
        return None
    data = read_file(path, LIMIT)
    try:
        content = yaml.load(data, _InertLoader)  # noqa: S506 (a SafeLoader)
        if isinstance(content, list):  # [[[key, value], ...]]
            content = {key: value for key, value in content[0] if isinstance(key, Hashable)}
    except (yaml.YAMLError, ValueError, LookupError, TypeError, AttributeError, RecursionError, OverflowError) as error:
        said = " ".join(str(error).split())[:120] or type(error).__name__
        raise PolicyError(f"{path}: not the plain YAML of a training ({said}); nothing of it was executed") from error
    if not isinstance(content, dict):
        raise PolicyError(f"{path}: not a mapping of names to values; restore it")
    return {key: value for key, value in content.items() if isinstance(key, str)}
