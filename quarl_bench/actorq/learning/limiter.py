"""How many transitions are sampled per transition inserted: neither side may run away from the other.

The rule of Reverb's SampleToInsertRatio: with d = inserts * ratio - samples, inserting is allowed while d stays below
a ceiling, sampling while it stays above a floor; both lie one `slack` around the difference at which learning starts.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self


@dataclass
class Ratio:
    """Counts inserts and samples, and says which of the two may go on; it never waits itself."""

    ratio: float  # samples per insert
    warmup: int  # inserts before the first sample
    slack: float  # samples that either side may be ahead
    inserts: int = 0
    samples: int = 0

    @classmethod
    def balance(cls, ratio: float, warmup: int, chunk: int, batch: int) -> Self:
        """The least slack with room: a batch, and four chunks, so that never both sides have to wait."""
        return cls(ratio, warmup, 4 * chunk * ratio + batch)

    def may_insert(self, count: int) -> bool:
        """Whether `count` more transitions keep the learner within reach; always before learning starts."""
        return self.inserts < self.warmup or self._ahead(count, 0) <= self.slack

    def may_sample(self, count: int) -> bool:
        """Whether there is enough that is new."""
        return self.inserts >= self.warmup and self._ahead(0, count) >= -self.slack

    def _ahead(self, inserts: int, samples: int) -> float:
        """By how many samples the actors are ahead of the learner, `inserts` and `samples` included."""
        return (self.inserts + inserts - self.warmup) * self.ratio - (self.samples + samples)


class Limiter:
    """The same for threads that wait; `close` lets all of them go. A side is woken only when it may go on."""

    def __init__(self, ratio: Ratio) -> None:
        self.ratio, self.open = ratio, True
        self._lock = threading.Lock()
        self._room, self._stock = threading.Condition(self._lock), threading.Condition(self._lock)
        self._wanting: list[int] = []  # what waits to be inserted
        self._needing = 0  # what waits to be sampled

    def insert(self, count: int, add: Callable[[], None] = lambda: None) -> bool:
        """Wait until `count` transitions may be inserted, `add` and count them; False, without, when closed."""
        with self._lock:
            self._wanting.append(count)
            self._room.wait_for(lambda: not self.open or self.ratio.may_insert(count))
            self._wanting.remove(count)
            if self.open:
                add()  # before anybody may sample them
                self.ratio.inserts += count
            if self._needing and self.ratio.may_sample(self._needing):
                self._stock.notify()
            return self.open

    def sample(self, count: int) -> bool:
        """Wait until `count` transitions may be sampled, and count them; False when closed. For one thread."""
        with self._lock:
            self._needing = count
            self._stock.wait_for(lambda: not self.open or self.ratio.may_sample(count))
            self._needing = 0
            self.ratio.samples += count if self.open else 0
            if self._wanting and self.ratio.may_insert(min(self._wanting)):
                self._room.notify_all()
            return self.open

    def close(self) -> None:
        """Wake all waiting threads: the run ends."""
        with self._lock:
            self.open = False
            self._room.notify_all()
            self._stock.notify_all()
