"""LQCC's judgements on designs (Table 3, section 3.4): exact numbers of formulas, a simulator, or an estimate.

Those on FINN's formulas collect what they need. For our own designs the bench writes and simulates them, and hands in
the cycles by task, or the two fits.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from quarl_bench.judging.rules.judgement import Domain, Judgement

if TYPE_CHECKING:
    from quarl_bench.experiments.cells import Cells
    from quarl_bench.judging.claim import JudgedClaim
    from quarl_bench.judging.evidence import Evidence
    from quarl_bench.spec import Verdict

REFERENCE = "reference"  # the name of the net of 256 with a core of 4 bits


@dataclass(frozen=True)
class OnDesigns(Judgement):
    """Decided from the cycles of designs by task, those of the reference among them."""

    domain = Domain.RATIO

    def collect(self, cells: "Cells", item: "JudgedClaim") -> "Evidence":  # noqa: ARG002
        """Cycles by FINN's formulas."""
        from quarl_bench.papers.lqcc.hardware.latency import count_finn

        return count_finn(item)


@dataclass(frozen=True)
class ModelLatency(OnDesigns):
    """Each task's cycles differ from the printed latency at 100 MHz by at most `threshold` of it."""

    name = "model_latency"
    meaning = "largest difference of cycles from the printed latency at 100 MHz, of it; supported up to the threshold"

    def decide(self, item: "JudgedClaim", evidence: "Evidence") -> "Verdict":
        """The task that differs most decides."""
        from quarl_bench.papers.lqcc.hardware.latency import judge_model, print_cycles

        return judge_model(evidence.own, print_cycles(item), self.threshold)


@dataclass(frozen=True)
class OnSizes(OnDesigns):
    """Decided from what designs take of one resource, by FINN's formulas, beside Table 3."""

    size: ClassVar[str]  # of FINN's dataflow
    column: ClassVar[str]  # of Table 3

    def collect(self, cells: "Cells", item: "JudgedClaim") -> "Evidence":  # noqa: ARG002
        """What each task's design takes."""
        from quarl_bench.papers.lqcc.hardware.latency import count_sizes

        return count_sizes(item, self.size)

    def list_printed(self, item: "JudgedClaim") -> dict[str, float]:
        """By task, what Table 3 prints."""
        return {task: float(row[self.column]) for (_, task), row in item.claim.values.items()}


@dataclass(frozen=True)
class ModelTables(OnSizes):
    """Each task's look-up tables differ from the printed ones by at most `threshold` of them."""

    name = "model_tables"
    meaning = "largest difference of look-up tables from the printed ones, of them; supported up to the threshold"
    size, column = "luts", "luts"

    def decide(self, item: "JudgedClaim", evidence: "Evidence") -> "Verdict":
        """The task that differs most decides."""
        from quarl_bench.papers.lqcc.hardware.latency import judge_model

        return judge_model(evidence.own, self.list_printed(item), self.threshold, "look-up tables")


@dataclass(frozen=True)
class ModelBlocks(OnSizes):
    """Each task's block RAMs differ from the printed ones by at most `threshold` blocks of 36 Kbit."""

    name = "model_blocks"
    meaning = "largest difference of block RAMs from the printed ones, in blocks; supported up to the threshold"
    size, column = "block_rams", "bram"

    def decide(self, item: "JudgedClaim", evidence: "Evidence") -> "Verdict":
        """The task that differs most decides."""
        from quarl_bench.papers.lqcc.hardware.latency import judge_blocks

        return judge_blocks(evidence.own, self.list_printed(item), self.threshold)


@dataclass(frozen=True)
class DesignLatency(OnDesigns):
    """Each task's cycles are at most `threshold` of those that its printed latency takes at 100 MHz."""

    name = "design_latency"
    meaning = "largest ratio of cycles to those of the printed latency at 100 MHz; supported up to the threshold"

    def decide(self, item: "JudgedClaim", evidence: "Evidence") -> "Verdict":
        """The slowest task decides."""
        from quarl_bench.papers.lqcc.hardware.latency import judge_latency, print_cycles

        return judge_latency(evidence.own, print_cycles(item), self.threshold)


@dataclass(frozen=True)
class DesignSpeedup(OnDesigns):
    """The reference takes `threshold` of the cycles that each task's printed factor times its own are, or more."""

    name = "design_speedup"
    meaning = (
        "smallest ratio of the reference's cycles to a task's, over the factor printed; supported from the threshold"
    )

    def decide(self, item: "JudgedClaim", evidence: "Evidence") -> "Verdict":
        """The task that gains least decides; without printed factors each is 1."""
        from quarl_bench.papers.lqcc.hardware.latency import judge_speedup

        printed = {task: row["times"] for (_, task), row in item.claim.values.items()}
        times = {case.environment: printed.get(case.environment, 1.0) for case in item.cases}
        cycles: dict[str, Any] = evidence.own
        return judge_speedup(cycles, cycles.get(REFERENCE), times, self.threshold)


@dataclass(frozen=True)
class DesignFits(OnDesigns):
    """The 8-bit design takes more than `threshold` of the part's scarcest resource, that with 4 bits does not."""

    name = "design_fits"
    meaning = "share of the scarcest resource that the 8-bit design takes; supported above the threshold"

    def collect(self, cells: "Cells", item: "JudgedClaim") -> "Evidence":  # noqa: ARG002
        """Both fits by FINN's formulas."""
        from quarl_bench.papers.lqcc.hardware.latency import fit_formulas

        return fit_formulas()

    def decide(self, item: "JudgedClaim", evidence: "Evidence") -> "Verdict":  # noqa: ARG002
        """Exact, of two designs."""
        from quarl_bench.papers.lqcc.hardware.latency import judge_fit

        eight, four = evidence.own
        return judge_fit(eight, four, self.threshold)


@dataclass(frozen=True)
class NoneFits(OnDesigns):
    """Each task's design of 8 bits and layers of 256 takes more than `threshold` of the part's scarcest resource."""

    name = "none_fits"
    meaning = "smallest share of the scarcest resource that a design takes; supported above the threshold"

    def collect(self, cells: "Cells", item: "JudgedClaim") -> "Evidence":  # noqa: ARG002
        """Shares by task, by FINN's formulas."""
        from quarl_bench.papers.lqcc.hardware.latency import share_eight_bits

        return share_eight_bits(item)

    def decide(self, item: "JudgedClaim", evidence: "Evidence") -> "Verdict":  # noqa: ARG002
        """The smallest design decides."""
        from quarl_bench.papers.lqcc.hardware.latency import judge_misfit

        return judge_misfit(evidence.own, self.threshold)
