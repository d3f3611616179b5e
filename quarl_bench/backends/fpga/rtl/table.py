"""The optional stage behind `policy`: output integers become actions, by the table that an integer policy has.

LQCC leaves this step to the host, and so does `policy`; what the table adds in cycles and look-up tables is reported
apart. One memory of float32 words is read once for each output, so the action leaves as a stream of 32 bits, whose
words are those that IntegerPolicy.act gives, bit by bit.
"""

from dataclasses import dataclass

import numpy as np

from quarl_bench.backends.fpga.explore.folding import LUTS_PER_BLOCK_RAM, FoldingPlan
from quarl_bench.backends.fpga.explore.rom import Rom
from quarl_bench.backends.fpga.rtl.layer import count_bits
from quarl_bench.backends.template import fill
from quarl_bench.errors import DeploymentError
from quarl_bench.policies.action_table import look_up, tabulate_actions
from quarl_bench.policies.policy import IntegerPolicy
from quarl_bench.quantization.affine import Integers
from quarl_bench.quantization.net import Floats

TANH_TOP = "policy_tanh"
STAGE = "tanh_table"
WORD_BITS = 32  # a float32


@dataclass(frozen=True, eq=False)
class ActionTable:
    """Actions (levels, actions) float32 for output integers, `lowest` in the first row."""

    actions: Floats
    lowest: int

    @classmethod
    def from_policy(cls, policy: IntegerPolicy) -> "ActionTable":
        """That of `policy`; DeploymentError for one that chooses by argmax."""
        if policy.head.discrete:
            raise DeploymentError("fpga: an argmax head has no table of actions; leave --tanh out")
        if policy.net.output.wide:
            raise DeploymentError(
                "fpga: wide outputs (acc) have 2^32 integers, too many for a table of actions; leave --tanh out: "
                "actions are the host's"
            )
        return cls(tabulate_actions(policy), policy.net.output.format.minimum)

    @property
    def shared(self) -> bool:
        """Whether all actions have the same bounds, so that one table does for all."""
        bits = self.actions.view(np.uint32)
        return bool((bits == bits[:, :1]).all())

    def find_words(self, outputs: Integers) -> Integers:
        """The bits of the actions (n, actions) for output integers."""
        return look_up(self.actions, outputs, self.lowest).view(np.uint32).astype(np.int64)

    def build_rom(self, plan: FoldingPlan) -> Rom:
        """The memory: a word for each code of an output of `plan`, for each action where their bounds differ."""
        outputs = plan.stages[-1].outputs
        if self.actions.shape[1] != outputs:
            raise DeploymentError(f"fpga: a table of {self.actions.shape[1]} actions for a policy of {outputs} outputs")
        tables = 1 if self.shared else outputs
        return Rom(STAGE, tables << plan.out_bits, 1, WORD_BITS, lambda: self._list_words(plan)[:, :tables].T)

    def _list_words(self, plan: FoldingPlan) -> Integers:
        """Words (codes, actions); zero for codes that stand for no output integer."""
        codes = np.arange(1 << plan.out_bits)
        values = np.where((codes >> (plan.out_bits - 1) == 1) & plan.out_signed, codes - (1 << plan.out_bits), codes)
        known = (values >= self.lowest) & (values < self.lowest + len(self.actions))
        rows = np.clip(values, self.lowest, self.lowest + len(self.actions) - 1)
        words = self.find_words(np.repeat(rows[:, None], self.actions.shape[1], axis=1))
        return np.where(known[:, None], words, 0)


def write_stage(rom: Rom, plan: FoldingPlan) -> str:
    """The Verilog of `tanh_table`; its memory is block RAM where that saves something and the folding has one left."""
    outputs, bits = plan.stages[-1].outputs, plan.out_bits
    taken = sum(other.blocks for other in plan.roms if other.name in plan.in_blocks)
    shared = rom.depth == 1 << bits
    return fill(
        f"{STAGE}.v",
        name=rom.name,
        outputs=outputs,
        bits=bits,
        bits_top=bits - 1,
        in_top=outputs * bits - 1,
        index_bits=count_bits(outputs),
        index_top=count_bits(outputs) - 1,
        last=outputs - 1,
        tables="one table for all" if shared else "a table for each",
        depth=rom.depth,
        address_bits=count_bits(rom.depth),
        block=int(rom.luts >= LUTS_PER_BLOCK_RAM * rom.blocks and rom.blocks <= plan.folding.block_rams - taken),
        address="value" if shared else "{next, value}",
    )


def write_tanh(plan: FoldingPlan) -> str:
    """The Verilog module `policy_tanh`, which looks up every output's tanh in a table after the last layer."""
    return fill(
        f"{TANH_TOP}.v", in_top=plan.in_lanes * plan.in_bits - 1, out_top=plan.stages[-1].outputs * plan.out_bits - 1
    )
