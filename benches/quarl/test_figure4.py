"""QuaRL, Figure 4 and section 5: a policy that does not fit into memory is slowed by swap, its int8 form is not.

A demonstration, not a claim: Policies I to III fit into any board. A larger net runs in a control group with too little
memory for its fp32 weights; the factor depends on the disk, only that there is a cliff does not. Needs root, and swap:
name a folder for a swap file of 512 MiB in QUARL_SWAP, or switch swap on.
"""

import contextlib
import os
from dataclasses import replace
from pathlib import Path

import pytest

from quarl_bench.boards.board import THIS_MACHINE
from quarl_bench.boards.memory import enable_swap, limit_memory
from quarl_bench.boards.session import open_session
from quarl_bench.boards.timing import TimingPlan
from quarl_bench.errors import BoardError
from quarl_bench.papers.quarl.navigation import draw_observations, export_both, make_random_policy

HIDDEN = (3400, 3400)  # 11.7 million weights: 47 MB in fp32, 12 MB in int8, beside 20 MB of Python and runtime
LIMIT = 45 << 20
SWAP = 512 << 20
FEW = TimingPlan(blocks=2, calls=3, seconds=0.0, warmup=0.0, insist=True)  # a swapping inference takes a second


def test_demonstration_of_the_swap_cliff(tmp_path, record_property):
    if os.geteuid() != 0:
        pytest.skip("the swap cliff needs root, to limit memory")
    folder = os.environ.get("QUARL_SWAP")
    with open_session(replace(THIS_MACHINE, folder=str(tmp_path))) as session, contextlib.ExitStack() as stack:
        if not folder and not session.state.swap:
            pytest.skip("the swap cliff needs swap: QUARL_SWAP=FOLDER makes a file of 512 MiB there")
        pair = export_both(make_random_policy(HIDDEN), draw_observations(50), tmp_path / "artefacts")
        free = session.compare(pair, FEW)
        try:
            if folder:
                stack.enter_context(enable_swap(Path(folder), SWAP))
            group = stack.enter_context(limit_memory(LIMIT))
        except BoardError as error:
            pytest.skip(str(error))
        limited = session.compare(pair, FEW, cgroup=group)
    slower = [
        after.find_ns("p50") / before.find_ns("p50")
        for before, after in ((free.first, limited.first), (free.second, limited.second))
    ]
    faults = [max(block.major_faults for block in timing.blocks) for timing in (limited.first, limited.second)]
    line = (
        f"with {LIMIT >> 20} MiB of memory fp32 is {slower[0]:.0f} times slower ({faults[0]} major faults), "
        f"int8 {slower[1]:.2g} times ({faults[1]})"
    )
    record_property("demonstration", line)
    print(line)  # noqa: T201  (seen with -rP)
    assert slower[0] > 10 * slower[1], line
    assert faults[0] > 1000 > faults[1], line
