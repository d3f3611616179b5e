"""ActorQ's ring of transitions against cpprb and flashbax: rates of insertion and of sampling, and memory.

`python benches/peers/replay.py [--rounds N] [--peers DIR]`: each contender in a process of its own, one thread, in
turns. DIR holds a folder for each of them, made by `pip install --target DIR/cpprb cpprb`, so that nothing is moved.

Transitions are those of D4PG on cheetah run (17 observations, 6 actions), 10^6 of them are kept, 64 come at once, 256
are drawn at once. CPU time of the process, behind a warm-up: what jax compiles is not counted. Prints medians.
"""

import argparse
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

CAPACITY, CHUNK, BATCH = 1_000_000, 64, 256
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


PEERS = {"ours": open_ours, "cpprb": open_cpprb, "flashbax": open_flashbax}


def measure(name: str) -> tuple[float, float, float]:
    """Transitions inserted and sampled per second of CPU time, and MB of memory that the full buffer takes."""
    insert, _ = PEERS[name](BATCH)  # all is imported
    insert(0)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    insert, sample = PEERS[name](CAPACITY)
    for index in range(WARMUP):
        insert(index)
    for _ in range(WARMUP):
        sample()
    begin = time.process_time()
    chunks = 0
    while chunks < CAPACITY // CHUNK and time.process_time() - begin < LONGEST:
        insert(chunks)
        chunks += 1
    inserted = time.process_time()
    for _ in range(SAMPLES):
        sample()
    sampled = time.process_time()
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    return chunks * CHUNK / (inserted - begin), SAMPLES * BATCH / (sampled - inserted), grown


def main() -> None:
    """Print a line for each contender that is there."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="Default: 5.")
    parser.add_argument("--peers", type=Path, help="folder of the other libraries. Default: none.")
    parser.add_argument("--only", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.only:
        print(*measure(options.only))
        return
    there = [name for name in PEERS if name == "ours" or (options.peers and (options.peers / name).is_dir())]
    found: dict[str, list[tuple[float, ...]]] = {name: [] for name in there}
    for _ in range(options.rounds):
        for name, values in found.items():
            own = [] if name == "ours" else [str((options.peers / name).absolute())]
            path = os.pathsep.join([*own, *filter(None, [os.environ.get("PYTHONPATH")])])
            flags = {"XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"}
            environment = os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1", "JAX_PLATFORMS": "cpu"} | flags
            command = [sys.executable, __file__, "--only", name]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment)
            values.append(tuple(map(float, done.stdout.split())))
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores, {options.rounds} rounds, {CAPACITY:,} transitions")
    for name, values in found.items():
        inserts, samples, grown = (statistics.median(column) for column in zip(*values, strict=True))
        print(f"  {name:<9}{inserts:>12,.0f} inserted/s{samples:>12,.0f} sampled/s{grown:>8,.0f} MB")


if __name__ == "__main__":
    main()
