"""ActorQ's ring of transitions against cpprb and flashbax: rates of insertion and of sampling, and memory.

Transitions are those of D4PG on cheetah run (17 observations, 6 actions), 10^6 of them are kept, 64 come at once, 256
are drawn at once. CPU time of the process, behind a warm-up: what jax compiles is not counted.
"""

import resource
import time
from collections.abc import Callable, Iterator
from typing import Any

from turns import Script, Turns, main, pick

from quarl_bench.judging.times.contest import Contest, Pair

CAPACITY, CHUNK, BATCH = 1_000_000, 64, 256
QUICK = 10_000  # transitions
INPUTS, OUTPUTS = 17, 6
SAMPLES, WARMUP = 2000, 50
LONGEST = 5.0  # seconds of CPU time for the insertions of one contender
Insert = Callable[[int], None]
Sample = Callable[[], object]


def make_columns(rows: int) -> dict[str, Any]:
    """Random transitions, by the names of `Transitions`."""
    import numpy as np

    generator = np.random.default_rng(0)
    wide = {"observations": INPUTS, "actions": OUTPUTS, "next_observations": INPUTS}
    drawn = {name: generator.standard_normal((rows, size)).astype(np.float32) for name, size in wide.items()}
    scalars = ("rewards", "discounts", "log_probs")
    return drawn | {name: generator.standard_normal(rows).astype(np.float32) for name in scalars}


def open_ours(capacity: int) -> tuple[Insert, Sample]:
    """The ring of this package."""
    import numpy as np

    from quarl_bench.actorq.learning.replay import Replay, Transitions

    replay, rows = Replay(capacity, np.random.default_rng(0)), Transitions(**make_columns(CHUNK))
    return lambda _: replay.add(rows), lambda: replay.sample(BATCH)


def open_cpprb(capacity: int) -> tuple[Insert, Sample]:
    """cpprb.ReplayBuffer with the same columns."""
    from cpprb import ReplayBuffer

    columns = make_columns(CHUNK)
    buffer = ReplayBuffer(capacity, {name: {"shape": array.shape[1:] or 1} for name, array in columns.items()})
    return lambda _: buffer.add(**columns), lambda: buffer.sample(BATCH)


def open_flashbax(capacity: int) -> tuple[Insert, Sample]:
    """The item buffer of flashbax, its two functions compiled by jax, its state given up at every insertion."""
    import flashbax
    import jax

    columns = {name: jax.numpy.asarray(array) for name, array in make_columns(CHUNK).items()}
    buffer = flashbax.make_item_buffer(capacity, BATCH, BATCH, add_sequences=True)
    held = [buffer.init({name: array[0] for name, array in columns.items()}), jax.random.PRNGKey(0)]
    add, draw = jax.jit(buffer.add, donate_argnums=0), jax.jit(buffer.sample)
    split = jax.jit(jax.random.split)

    def insert(_: int) -> None:
        held[0] = jax.block_until_ready(add(held[0], columns))

    def sample() -> object:
        held[1], key = split(held[1])
        return jax.block_until_ready(draw(held[0], key))

    return insert, sample


CONTENDERS = {"ours": open_ours, "cpprb": open_cpprb, "flashbax": open_flashbax}


def measure(name: str, options: Any) -> tuple[float, float, float]:
    """Transitions inserted and sampled per second of CPU time, and MB of memory that the full buffer takes."""
    capacity = QUICK if options.quick else CAPACITY
    insert, _ = CONTENDERS[name](BATCH)  # all is imported
    insert(0)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    insert, sample = CONTENDERS[name](capacity)
    for index in range(WARMUP):
        insert(index)
    for _ in range(WARMUP):
        sample()
    begin = time.process_time()
    chunks = 0
    while chunks < capacity // CHUNK and time.process_time() - begin < LONGEST:
        insert(chunks)
        chunks += 1
    inserted = time.process_time()
    for _ in range(SAMPLES):
        sample()
    sampled = time.process_time()
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    return chunks * CHUNK / (inserted - begin), SAMPLES * BATCH / (sampled - inserted), grown


def compare(turns: Turns) -> Iterator[Contest]:
    """Insertion, sampling and memory of those that are there."""
    taken = turns.take(CONTENDERS)
    pairs = tuple(Pair("ours", name) for name in taken if name != "ours")
    yield Contest("inserted", "transitions per CPU second", pick(taken, 0), pairs, rate=True)
    yield Contest("sampled", "transitions per CPU second", pick(taken, 1), pairs, rate=True)
    yield Contest("memory", "MB", pick(taken, 2))


if __name__ == "__main__":
    main(Script(__file__, __doc__, compare, 3, measure, needs={"cpprb": "cpprb", "flashbax": "flashbax"}))
