"""The masks of a batch of episodes, put beside the observations that they belong to."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from quarl_bench.environments.encoding import list_choices
from quarl_bench.environments.masking import ENTRY, METHOD, find_mask, find_masks, read_mask
from quarl_bench.errors import QuarlError, SpecError, first_line
from quarl_bench.policies.head import ActionHead, HeadKind, Masks
from quarl_bench.policies.masks import add_masks

REMEDY = f"mend {METHOD}() there, or {ENTRY} in its info"
Refuse = Callable[[int, str, str], SpecError]  # of an environment, what is wrong, and what to do


class MaskReader:
    """What the environments of a batch allow; one that gives no mask at the start of an episode gives none later."""

    def __init__(self, environments: Sequence[gymnasium.Env[Any, Any]], refuse: Refuse) -> None:
        self._methods = [find_masks(bare) for bare in environments]
        self._choices = list_choices(environments[0].action_space) or ()
        self._refuse = refuse
        self._given: bool | None = None  # whether there are masks, once it is known

    def begin(self) -> None:
        """New episodes begin."""
        self._given = None

    def add(
        self,
        active: NDArray[np.intp],
        observations: NDArray[Any],
        infos: Sequence[Mapping[str, Any]],
        done: NDArray[np.bool_] | None = None,
    ) -> NDArray[Any]:
        """The observations (n, ...) with their masks, if there are any; of an episode that is `done` none is read.

        SpecError where some have masks and others not, and for what is no mask.
        """
        masks = np.ones((len(active), sum(self._choices)), np.bool_)
        for place, (index, info) in enumerate(zip(active, infos, strict=True)):
            if done is not None and done[place]:
                continue
            mask = self._read(int(index), info)
            if self._given is None:
                self._given = mask is not None
            if self._given != (mask is not None):
                raise self._refuse(int(index), "it gives masks of actions at some steps, and none at others", REMEDY)
            if mask is not None:
                masks[place] = mask
        return add_masks(observations, masks) if self._given else observations

    def _read(self, index: int, info: Mapping[str, Any]) -> Masks | None:
        try:
            found = find_mask(self._methods[index], info)
            return None if found is None else read_mask(found, self._choices)
        except QuarlError as error:
            raise self._refuse(index, str(error), REMEDY) from error
        except Exception as error:  # whatever the environment raises
            what = f"its masks of actions cannot be read ({type(error).__name__}: {first_line(error)})"
            raise self._refuse(index, what, REMEDY) from error


def draw_allowed(space: gymnasium.Space[Any], masks: Masks, draws: np.random.Generator) -> NDArray[np.int64]:
    """Random actions (n, ...) of a policy's space, the same wherever the same are allowed."""
    sizes = list_choices(space) or ()
    head = ActionHead(HeadKind.PARTS, sizes=sizes)
    actions = head.pick(head.weigh(np.tile(draws.random(sum(sizes)), (len(masks), 1)), masks))
    return actions[:, 0] if isinstance(space, gymnasium.spaces.Discrete) else actions
