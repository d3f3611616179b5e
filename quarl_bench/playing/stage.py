"""One start, played by several policies at once, with pictures of it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from quarl_bench.playing.scenes import Picture, Scenes
from quarl_bench.policies.policy import Policy


@dataclass(frozen=True, eq=False)
class Panel:
    """What one policy's episode shows at one moment."""

    name: str
    picture: Picture | None  # (height, width, 3); None where a window shows it
    gained: float  # the return so far
    steps: int
    ended: bool


def play_side_by_side(
    policies: Sequence[tuple[str, Policy]], scenes: Scenes, *, every: int = 1, most: int | None = None
) -> Iterator[tuple[Panel, ...]]:
    """A panel per (name, policy), at the start, behind every `every`-th step, and where the last episode has ended.

    `scenes` are one start, as often as there are policies. Episodes are cut off behind `most` steps.
    """
    names, active = [name for name, _ in policies], np.arange(len(policies))
    observations, memory = scenes.reset(), [policy.initial_state(1) for _, policy in policies]
    pictures = [scenes.render(index) for index in active]
    gained, steps = np.zeros(len(names)), np.zeros(len(names), np.int64)
    ended = np.zeros(len(names), np.bool_)

    def show() -> tuple[Panel, ...]:
        values = zip(names, pictures, gained.tolist(), steps.tolist(), ended.tolist(), strict=True)
        return tuple(Panel(*value) for value in values)

    yield show()
    step = 0
    while len(active) and step != most:
        actions = []
        for place, index in enumerate(active):
            policy, one = policies[index][1], observations[place : place + 1]
            if policy.recurrent:
                action, memory[index] = policy.act(one, memory[index])
            else:
                action = policy.act(one)
            actions.append(action[0])
        observations, rewards, done = scenes.step(active, np.stack(actions))
        step += 1
        gained[active] += rewards
        steps[active], ended[active] = step, done
        last = done.all() or step == most
        for place, index in enumerate(active):
            if last or done[place] or step % every == 0:
                pictures[index] = scenes.render(index)
        active, observations = active[~done], observations[~done]
        if last or step % every == 0:
            yield show()
