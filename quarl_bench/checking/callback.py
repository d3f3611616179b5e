"""While a model of stable-baselines3 trains: what would each scheme keep of its return?"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from quarl_bench.checking.subject import Subject, open_subject
from quarl_bench.errors import SpecError
from quarl_bench.evaluation.protocol import list_validation_seeds
from quarl_bench.experiments.member import FP32
from quarl_bench.judging.pairs import align
from quarl_bench.policies.storage.fp32 import StoredPolicy, hash_policy
from quarl_bench.quantization.scheme import Scheme, read_scheme
from quarl_bench.spec import Measurement
from quarl_bench.system.extras import needing

with needing("sb3", "QuantizationCallback"):
    from stable_baselines3.common.callbacks import BaseCallback

    from quarl_bench.policies.sources.sb3.model import extract

if TYPE_CHECKING:
    from quarl_bench.environments.registry import Environment

EVERY = 10_000
EPISODES = 10


class QuantizationCallback(BaseCallback):
    """Play the policy in each scheme while it trains, and log what it keeps, for `model.learn(callback=...)`.

    After every `every` environment steps, when their rollout is over, and at the end, stable-baselines3's logger gets
    `quarl/fp32_return`, and of every scheme `quarl/<scheme>_return`, `_keeps` (the share of fp32's return) and
    `_same_action` (the share of visited states in which it acts as fp32 does), so that TensorBoard draws them.
    `history` holds the same numbers. Training goes on as it would without: the episodes have their own environments.

    Args:
        schemes: Their names, as `["int8", "w4"]`. Schemes of trained quantizers (`qat8`) are no schemes of a model.
        every: Environment steps between two looks.
        env: Where the policy plays, as `check` takes it. The default is the environment that it trains in.
        episodes: Environment seeds, the same at every look: of validation, so that no verdict has seen them.
        env_kwargs: What `env` is made with.
        floor: A return that counts as nothing, as a random policy's. Where fp32 does not return more, nothing is kept.

    Raises:
        QuarlError: When training begins: a scheme that does not exist or that this model has no form in, or an
            environment of which no others can be made.
    """

    def __init__(
        self,
        schemes: Sequence[Scheme | str],
        every: int = EVERY,
        env: Any = None,
        *,
        episodes: int = EPISODES,
        env_kwargs: Mapping[str, Any] | None = None,
        floor: float | None = None,
        verbose: int = 0,
    ) -> None:
        super().__init__(verbose)
        if isinstance(schemes, str) or not schemes:
            raise SpecError(f"schemes {schemes!r}: give a list of names, as ['int8', 'int4']")
        for name, value in (("every", every), ("episodes", episodes)):
            if not isinstance(value, int) or value < 1:
                raise SpecError(f"{name} {value!r}: a whole number above 0")
        self.schemes = [read_scheme(scheme) for scheme in schemes]
        self.every, self.env, self.episodes, self.env_kwargs, self.floor = every, env, episodes, env_kwargs, floor
        self.history: list[dict[str, float]] = []  # by `timesteps` and the names that are logged

    def _on_training_start(self) -> None:
        env = self.model.get_env() if self.env is None else self.env
        subject = open_subject(self.model, env, env_kwargs=self.env_kwargs)
        self._environment: Environment = subject.environment
        for scheme in self.schemes:
            subject.quantize(scheme)  # what cannot be done says so before hours of training
        self._next = (self.num_timesteps // self.every + 1) * self.every

    def _on_rollout_start(self) -> None:
        """Here the policy has learned from all that it has seen so far."""
        if self.num_timesteps >= self._next:
            self._next = (self.num_timesteps // self.every + 1) * self.every
            self._look()

    def _on_step(self) -> bool:
        return True

    def _on_training_end(self) -> None:
        self._look()  # at the policy that training ends with

    def _look(self) -> None:
        """Play fp32 and every scheme now, and log."""
        net = extract(self.model)
        subject = Subject(StoredPolicy(net, hash_policy(net), {}), self._environment)
        seeds = list_validation_seeds(self.episodes)
        reference = subject.play(FP32, seeds)
        found = {"fp32_return": reference.mean}
        for scheme in self.schemes:
            found |= self._compare(scheme.name, reference, subject.play(scheme, seeds))
        for name, value in found.items():
            self.logger.record(f"quarl/{name}", value)
        self.logger.record("time/total_timesteps", self.num_timesteps, exclude="tensorboard")
        self.logger.dump(self.num_timesteps)
        self.history.append({"timesteps": float(self.num_timesteps), **found})

    def _compare(self, name: str, reference: Measurement, measured: Measurement) -> dict[str, float]:
        found = {f"{name}_return": measured.mean}
        base, other = (float(values.mean()) for values in align(reference, measured))
        size = base - (self.floor or 0.0)
        if size > 0 or (self.floor is None and size):  # as verdicts count: of negative returns the loss is what counts
            found[f"{name}_keeps"] = 1.0 + (other - base) / abs(size)
        if measured.agreement is not None:
            found[f"{name}_same_action"] = measured.agreement[0]
        return found
