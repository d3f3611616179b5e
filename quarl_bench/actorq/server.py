"""The parameter server: quantizes the learner's policy once per broadcast, whoever asks for it."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from quarl_bench.actorq.breakdown import SERVING, Stopwatch
from quarl_bench.actorq.delta import pack_delta
from quarl_bench.actorq.learning.agents import CLOSE, act_greedily
from quarl_bench.actorq.message import Bytes, compress, encode, quantize
from quarl_bench.actorq.settings import RunSettings
from quarl_bench.policies.policy import PolicyNet
from quarl_bench.quantization.net import Floats

WHOLE_PERIOD = 10  # broadcasts from one whole message to the next, where the others are changes


@dataclass
class Broadcasts:
    """What was broadcast so far: how many messages, of how many bytes, and how far they agree with fp32."""

    count: int = 0
    sizes: list[int] = field(default_factory=list)  # bytes of each
    agreement: list[float] = field(default_factory=list)  # of quantized with fp32 actions, on calibration states


class ParameterServer:
    """Holds the latest message. `probes`: every so many broadcasts the integer policy is compared with its origin."""

    def __init__(self, settings: RunSettings, probes: int = 10) -> None:
        self._settings, self._probes = settings, probes
        self._watch = Stopwatch(SERVING)
        self._whole: Bytes | None = None  # the last message that was sent whole, not compressed
        self.broadcasts = Broadcasts()

    def prepare(self, policy: PolicyNet, version: int, states: Floats) -> Bytes:
        """The message that every actor gets, or what changed in it; `states` (n, *shape) calibrate int8 actors."""
        settings = self._settings
        if settings.precision == "int8" and self.broadcasts.count % self._probes == 0:
            self._compare(policy, states)
        self._watch.resume()
        message = encode(policy, version, shipped=settings.shipped, precision=settings.precision, states=states)
        self._watch.lap("encode")
        message = self._pack(message)
        self._watch.lap("compress")
        self.broadcasts.count += 1
        self.broadcasts.sizes.append(len(message))
        return message

    def _pack(self, message: Bytes) -> Bytes:
        settings = self._settings
        if settings.delta and self._whole is not None and self.broadcasts.count % WHOLE_PERIOD:
            changes = pack_delta(message, self._whole, settings.shipped)
            if changes is not None:
                return changes
        self._whole = message if settings.delta else None
        return compress(message) if settings.compress else message

    def report(self) -> dict[str, Any]:
        """Times and sizes, of built-in types."""
        sent = self.broadcasts
        return {
            "broadcasts": sent.count,
            "bytes": float(np.mean(sent.sizes)) if sent.sizes else 0.0,
            "quantized_agreement": float(np.mean(sent.agreement)) if sent.agreement else None,
            "breakdown": self._watch.read(sent.count).as_dict(),
        }

    def _compare(self, policy: PolicyNet, states: Floats) -> None:
        """Share of states in which the integers choose fp32's action; for continuous ones, are within a hundredth."""
        ours, theirs = act_greedily(policy, states), quantize(policy, states).outputs(states)
        if policy.head.discrete:
            same = ours == theirs.argmax(axis=1)
        else:
            same = (np.abs(ours - np.tanh(theirs)) <= CLOSE).all(axis=1)
        self.broadcasts.agreement.append(float(same.mean()))
