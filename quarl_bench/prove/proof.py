"""Closed-loop episodes of one policy in every executor: their actions hashed, the first divergence named."""

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quarl_bench.environments.registry import Environment
from quarl_bench.errors import QuarlError, SpecError
from quarl_bench.evaluation.rollouts import roll_out
from quarl_bench.policies.policy import Observations, Policy
from quarl_bench.prove.executors import GOLDEN, Execution, InferenceCost, ProofSubject, list_executors
from quarl_bench.quantization.recurrent.cells import State


@dataclass(frozen=True)
class ExecutorResult:
    """What one executor did, or the `reason` why it did not run. `divergence`: where it first left the golden model."""

    executor: str
    how: str = ""
    sha256: str = ""
    mean: float = 0.0  # return of an episode
    actions: int = 0
    bytes: int = 0
    cost: InferenceCost | None = None
    divergence: str = ""
    reason: str = ""


@dataclass(frozen=True, eq=False)
class RecordingPolicy(Policy):
    """A policy that keeps what it saw and did, call by call: the states of all running episodes, in order."""

    calls: list[tuple[Observations, NDArray[Any]]] = field(default_factory=list)

    def act(self, observations: Observations, state: State | None = None) -> Any:  # type: ignore[override]
        """Actions (n, ...) of the policy, and its next state where it has one; observations and actions are kept."""
        if state is None:
            actions = super().act(observations)
            self.calls.append((observations, actions))
            return actions
        actions, state = super().act(observations, state)
        self.calls.append((observations, actions))
        return actions, state


@dataclass(frozen=True, eq=False)
class RecordedEpisodes:
    """Recorded episodes and their returns."""

    calls: list[tuple[Observations, NDArray[Any]]]
    returns: NDArray[np.float64]

    @property
    def sha256(self) -> str:
        """Of all actions, step by step and within a step in the order of the episodes, little-endian.

        Without the sign of zeros, which is no other action: training's forward has negative ones, integers have none.
        """
        content = hashlib.sha256()
        for _, signed in self.calls:
            actions = signed + signed.dtype.type(0)
            content.update(np.ascontiguousarray(actions, actions.dtype.newbyteorder("<")).tobytes())
        return content.hexdigest()

    @property
    def actions(self) -> int:
        """Actions that were taken over all calls, one an observation."""
        return sum(len(actions) for _, actions in self.calls)


class IrreproducibleError(SpecError):
    """The environment is to blame, not a backend."""


def prove(
    subject: ProofSubject, environment: Environment, seeds: Sequence[int], names: Sequence[str] | None = None
) -> Iterator[ExecutorResult]:
    """A row for each executor, or each of `names`; the golden model's comes first, whether it is asked for or not."""
    golden, row = _play(GOLDEN, subject, environment, seeds, None)
    yield row
    for name in list_executors() if names is None else names:
        if name == GOLDEN:
            continue
        try:
            yield _play(name, subject, environment, seeds, golden)[1]
        except IrreproducibleError:
            raise
        except QuarlError as error:
            yield ExecutorResult(name, reason=str(error))


def _play(
    name: str, subject: ProofSubject, environment: Environment, seeds: Sequence[int], golden: RecordedEpisodes | None
) -> tuple[RecordedEpisodes, ExecutorResult]:
    with ExitStack() as stack:
        execution = list_executors()[name](subject, stack)
        policy = execution.policy
        recorder = RecordingPolicy(policy.transform, policy.net, policy.head)
        returns = roll_out(recorder, environment, seeds).returns
        played = RecordedEpisodes(recorder.calls, returns)
        divergence = "" if golden is None else find_divergence(golden, played, subject, execution)
        return played, ExecutorResult(
            executor=name,
            how=execution.how,
            sha256=played.sha256,
            mean=float(returns.mean()),
            actions=played.actions,
            bytes=execution.bytes,
            cost=execution.measure_cost(),
            divergence=divergence,
        )


def find_divergence(
    golden: RecordedEpisodes, played: RecordedEpisodes, subject: ProofSubject, execution: Execution
) -> str:
    """The first action that is not the golden model's, and where in the net it began; empty when there is none."""
    for step, ((states, expected), (others, got)) in enumerate(zip(golden.calls, played.calls, strict=False)):
        if not np.array_equal(states, others):  # the actions before were equal
            raise IrreproducibleError(
                f"step {step}: the environment gives other states after equal actions; seed all of it"
            )
        if np.array_equal(expected, got):
            continue
        row = int(np.argwhere((expected != got).reshape(len(expected), -1).any(1))[0, 0])
        policy = subject.policy
        if policy.recurrent:
            return f"step {step}, running episode {row}: action {_name(expected[row])}, got {_name(got[row])}"
        where = execution.locate(policy.net.input.quantize(policy.transform.apply(states[row : row + 1])))
        begun = where or "its integers agree, so its input or its action's encoding does not"
        return f"step {step}, running episode {row}: action {_name(expected[row])}, got {_name(got[row])}; {begun}"
    return ""


def _name(action: Any) -> str:
    return np.array2string(np.asarray(action), precision=9, threshold=8)
