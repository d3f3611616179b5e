"""From a recipe to a stable-baselines3 model that can learn it."""

import copy
import inspect
from typing import Any

import numpy as np
import torch
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.noise import NormalActionNoise, OrnsteinUhlenbeckActionNoise
from stable_baselines3.common.torch_layers import NatureCNN
from stable_baselines3.common.vec_env import VecEnv

from quarl_bench.errors import MissingExtra, SpecError
from quarl_bench.policies.algorithm import ALGORITHMS, Algorithm, find_algorithm
from quarl_bench.quantization.activations import ELEMENTWISE, Activation
from quarl_bench.system.extras import needing
from quarl_bench.system.registry import load
from quarl_bench.training.recipes import FP16, FP32, Recipe, schedule
from quarl_bench.training.sb3 import aware
from quarl_bench.training.sb3 import mixed_precision as mixed
from quarl_bench.training.sb3.scaled_cnn import SizedCNN

NOISE = {"normal": NormalActionNoise, "ou": OrnsteinUhlenbeckActionNoise}
EXTRACTORS = {"sized": SizedCNN}
IMAGES = "CnnPolicy"


def choose_device(recipe: Recipe) -> str:
    """Where a recipe trains: a GPU pays for images and for fp16, and for nothing smaller."""
    pays = recipe.policy == IMAGES or recipe.precision == FP16
    return "cuda" if pays and torch.cuda.is_available() else "cpu"


def make_model(recipe: Recipe, vector: VecEnv, seed: int, device: str = "", *, stock: bool = False) -> BaseAlgorithm:
    """A fresh model of `recipe` on the environments of `vector`; where it pays, unless `device` says where.

    In fp32 a `stock` one has stable-baselines3's own policy; ours is faster on images.
    """
    hyperparameters = copy.deepcopy(recipe.hyperparameters)  # DDPG and gSDE write into policy_kwargs
    arguments = {key: schedule(value) for key, value in hyperparameters.items()}
    kwargs = arguments.setdefault("policy_kwargs", {})
    if "activation_fn" in kwargs:
        kwargs["activation_fn"] = ELEMENTWISE[Activation(kwargs["activation_fn"])].module
    if "features_extractor_class" in kwargs:
        kwargs["features_extractor_class"] = EXTRACTORS[kwargs["features_extractor_class"]]
        kwargs.setdefault("net_arch", [])  # what NatureCNN itself gets: nothing between features and heads
    if recipe.noise is not None:
        kind, sd = recipe.noise
        zero = np.zeros(vector.action_space.shape or (), dtype=np.float32)
        arguments["action_noise"] = NOISE[kind](mean=zero, sigma=zero + np.float32(sd))
    algorithm = load_class(recipe.algo)
    unknown = sorted(arguments.keys() - inspect.signature(algorithm).parameters.keys())
    if unknown:
        needed = f"a newer stable-baselines3, whose {algorithm.__name__} takes {', '.join(unknown)}"
        raise MissingExtra("sb3", f"the recipe of {recipe.algo} on {recipe.environment}", needed)
    device = device or choose_device(recipe)
    return algorithm(_choose_policy(recipe, kwargs, stock=stock), vector, seed=seed, device=device, **arguments)


def load_class(algo: str) -> type[BaseAlgorithm]:
    """The class of an algorithm's models; MissingExtra where its library is not installed."""
    algorithm = find_algorithm(algo)
    with needing(algorithm.extra, f"training {algo}"):
        found: type[BaseAlgorithm] = load(algorithm.model)
    return found


def load_half(algorithm: Algorithm, policy: str) -> Any:
    """Its policy class with hidden layers in half precision; SpecError where it has none."""
    if policy not in algorithm.half:
        raise SpecError(f"{algorithm.name}: no {policy} in half precision; known are {', '.join(algorithm.half)}")
    return load(algorithm.half[policy])


def load_model(recipe: Recipe, path: Any, vector: VecEnv) -> BaseAlgorithm:
    """A model that `make_model` made and that was saved to `path`."""
    return load_class(recipe.algo).load(path, env=vector, device=choose_device(recipe))


def _choose_policy(recipe: Recipe, kwargs: dict[str, Any], *, stock: bool) -> Any:
    """The policy's class; what it has to be told goes into `kwargs`."""
    policy, algorithm = recipe.policy, find_algorithm(recipe.algo)
    offered = algorithm.aware if recipe.scheme else algorithm.half
    if recipe.precision != FP32 or (policy == IMAGES and mixed.NAME in offered and not stock):
        kwargs["precision"] = recipe.precision
        if policy != IMAGES:
            return load_half(algorithm, policy)
        policy = mixed.NAME
        plain = kwargs.get("features_extractor_class", NatureCNN)
        kwargs["features_extractor_class"] = mixed.EXTRACTORS[plain]
        kwargs.setdefault("net_arch", [])
    if recipe.layer_norm:
        if not algorithm.normed or recipe.scheme or policy != "MlpPolicy":
            known = " and ".join(each.name for each in ALGORITHMS.values() if each.normed)
            raise SpecError(f"{recipe.algo} {recipe.environment}: layer_norm is for fp32 perceptrons of {known}")
        return load(algorithm.normed)
    if recipe.scheme:
        kwargs["scheme"] = recipe.scheme
        return aware.find_policy_class(recipe.algo, policy)
    return load_half(algorithm, policy) if policy == mixed.NAME else policy
