"""LQCC's judgements on bits, widths and its Table 1 (sections 3.1 and 3.2), over returns by task and configuration.

The name of a sweep's end stands in the item's scheme: `i8c3o8` is about the core.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from quarl_bench.errors import SpecError
from quarl_bench.judging.rules.judgement import Domain, Judgement

if TYPE_CHECKING:
    from quarl_bench.experiments.cells import Cells
    from quarl_bench.judging.claim import JudgedClaim
    from quarl_bench.judging.evidence import Evidence
    from quarl_bench.papers.lqcc.runs.tasks import Tasks
    from quarl_bench.spec import Verdict
    from quarl_bench.views.panel import Panel

ALL_BITS = tuple(range(3, 9))
FEW_BITS = tuple(range(2, 5))  # at which section 3.1 sees differences
SCOPES = {"all": ("input", "core", "output"), "input": ("input",), "output": ("output",), "core": ("core",)}  # of bits


@dataclass(frozen=True)
class OnTasks(Judgement):
    """Decided from returns by task and configuration: the authors' own, or those of our policies."""

    domain = Domain.NUMBER
    raw: ClassVar[bool] = False  # whether fp32's returns are those on raw observations

    def collect(self, cells: "Cells", item: "JudgedClaim") -> "Evidence":
        """fp32 returns by task, and a finder of those of a configuration, which measures when it is asked."""
        from quarl_bench.papers.lqcc.collect import find_tasks

        return find_tasks(cells, item, raw=self.raw)

    def decide(self, item: "JudgedClaim", evidence: "Evidence") -> "Verdict":
        """The verdict on the tasks of which nothing is missing."""
        return self.judge(item, evidence.own)

    def judge(self, item: "JudgedClaim", tasks: "Tasks") -> "Verdict":
        """The verdict on these tasks."""
        raise NotImplementedError


@dataclass(frozen=True)
class Matches(OnTasks):
    """With `bits` in a scope the mean lies inside fp32's band of one SD, in a share `threshold` of the cells."""

    scope: str
    bits: Sequence[int] = ALL_BITS
    drawn: bool = False  # the page draws the sweeps over bits: Figures 1 and 6

    name = "band"
    meaning = (
        "share of cells whose mean lies inside fp32's band (the paper's rule, exact); supported from the threshold"
    )
    domain = Domain.WHOLE

    def check(self) -> None:
        """SpecError for a share out of range or an unknown scope."""
        super().check()
        if self.scope not in SCOPES:
            raise SpecError(f"scope {self.scope!r} must be one of {', '.join(SCOPES)}")

    def judge(self, item: "JudgedClaim", tasks: "Tasks") -> "Verdict":  # noqa: ARG002
        """The paper's rule in every cell, and what intervals say."""
        from quarl_bench.papers.lqcc.sentences import judge_parity

        return judge_parity(tasks, self.scope, self.bits, self.threshold)

    def show(self, item: "JudgedClaim", evidence: "Evidence") -> "Sequence[Panel]":
        """A panel per task, a series per scope, where they are drawn."""
        from quarl_bench.papers.lqcc.collect import show_bits

        return show_bits(item, evidence) if self.drawn else ()


@dataclass(frozen=True)
class MatchesRaw(Matches):
    """As `Matches`, against fp32 on raw observations."""

    name = "raw_band"
    meaning = "share of cells whose mean lies inside the band of fp32 on raw observations; supported from the threshold"
    raw = True

    def judge(self, item: "JudgedClaim", tasks: "Tasks") -> "Verdict":
        """What is missing of fp32 is missing of raw fp32."""
        found = super().judge(item, tasks)
        missing = tuple(f"{gap}, raw" if gap.endswith(": fp32") else gap for gap in found.missing)
        return replace(found, missing=missing)


@dataclass(frozen=True)
class Bottleneck(OnTasks):
    """At few bits the item's scope keeps more than `threshold` more of fp32's return than the scope `worst`."""

    worst: str = "input"

    name = "bottleneck"
    meaning = "advantage of one scope over another at 2 to 4 bits, of fp32's return; supported above the threshold"

    def judge(self, item: "JudgedClaim", tasks: "Tasks") -> "Verdict":
        """Stratified Welch over tasks and bits."""
        from quarl_bench.papers.lqcc.selection import Configuration
        from quarl_bench.papers.lqcc.sentences import judge_bottleneck

        scope = Configuration.find_scope(item.scheme)[0]
        return judge_bottleneck(tasks, scope, self.worst, FEW_BITS, self.threshold)


@dataclass(frozen=True)
class FlatOutput(OnTasks):
    """3 to 7 output bits return what 8 do, within +- `threshold` of fp32's return."""

    name = "flat_output"
    meaning = "mean return with 3 to 7 output bits minus that with 8, of fp32's; supported within +- threshold"
    domain = Domain.SHARE

    def judge(self, item: "JudgedClaim", tasks: "Tasks") -> "Verdict":  # noqa: ARG002
        """Two one-sided tests."""
        from quarl_bench.papers.lqcc.sentences import judge_output

        return judge_output(tasks, self.threshold)


@dataclass(frozen=True)
class Costs(OnTasks):
    """The item's configuration returns less than 8 bits everywhere, by more than `threshold` of fp32's return."""

    name = "costs"
    meaning = "return of a configuration minus that with 8 bits, of fp32's; supported below minus the threshold"
    narrow: ClassVar[bool] = False  # compared with layers of 256 at the same bits instead

    def judge(self, item: "JudgedClaim", tasks: "Tasks") -> "Verdict":
        """Stratified Welch over tasks."""
        from quarl_bench.papers.lqcc.selection import WIDTHS, Configuration
        from quarl_bench.papers.lqcc.sentences import judge_cost

        few = Configuration.parse(item.scheme)
        many = replace(few, width=WIDTHS[-1]) if self.narrow else None
        return judge_cost(tasks, few, many, self.threshold)


@dataclass(frozen=True)
class NarrowCosts(Costs):
    """The item's narrow layers return less than those of 256 at the same bits."""

    name = "narrow_costs"
    meaning = (
        "return of narrow layers minus that of 256 at the same bits, of fp32's; supported below minus the threshold"
    )
    narrow = True


@dataclass(frozen=True)
class ReturnsMore(OnTasks):
    """With few bits in a scope the return is above fp32's, by more than `threshold` of it."""

    scope: str = "all"

    name = "returns_more"
    meaning = "mean return with few bits minus fp32's, of fp32's; supported above the threshold"

    def judge(self, item: "JudgedClaim", tasks: "Tasks") -> "Verdict":  # noqa: ARG002
        """Stratified Welch over tasks and bits."""
        from quarl_bench.papers.lqcc.sentences import judge_gain

        return judge_gain(tasks, self.scope, FEW_BITS, self.threshold)


@dataclass(frozen=True)
class ReturnsLess(OnTasks):
    """With the item's bits the return is below fp32's, by more than minus `threshold` of it."""

    name = "returns_less"
    meaning = "mean return with few bits minus fp32's, of fp32's; supported below the threshold"

    def judge(self, item: "JudgedClaim", tasks: "Tasks") -> "Verdict":
        """The opposite of returning more."""
        from quarl_bench.judging.retention import reverse
        from quarl_bench.papers.lqcc.selection import Configuration
        from quarl_bench.papers.lqcc.sentences import judge_gain

        scope, bits = Configuration.find_scope(item.scheme)
        return reverse(judge_gain(tasks, scope, (bits,), self.threshold))


@dataclass(frozen=True)
class FewerInputBits(OnTasks):
    """Behind the selected core and width fewer input bits match, in a share `threshold` of the tasks."""

    name = "fewer_input_bits"
    meaning = "share of tasks in which fewer input bits match behind the selected net; supported from the threshold"
    domain = Domain.WHOLE

    def judge(self, item: "JudgedClaim", tasks: "Tasks") -> "Verdict":
        """The paper's rule, exact."""
        from quarl_bench.papers.lqcc.sentences import judge_input_bits, read_printed

        return judge_input_bits(tasks, read_printed(item.claim), self.threshold)


@dataclass(frozen=True)
class SelectsPrinted(OnTasks):
    """The three-step rule selects the printed configuration, in a share `threshold` of the tasks."""

    name = "selects_printed"
    meaning = "share of tasks in which the rule, replayed, selects what is printed; supported from the threshold"
    domain = Domain.WHOLE

    def judge(self, item: "JudgedClaim", tasks: "Tasks") -> "Verdict":
        """A replay, exact."""
        from quarl_bench.papers.lqcc.sentences import judge_table, read_printed

        return judge_table(tasks, read_printed(item.claim), self.threshold)

    def show(self, item: "JudgedClaim", evidence: "Evidence") -> "Sequence[Panel]":
        """Figures 4 and 5, around what the rule selects."""
        from quarl_bench.papers.lqcc.collect import show_selected

        return show_selected(item, evidence)


@dataclass(frozen=True)
class SelectedMatch(OnTasks):
    """The printed configurations lie inside fp32's band of one SD, in a share `threshold` of the tasks."""

    name = "selected_band"
    meaning = "share of tasks whose selected configuration lies inside fp32's band; supported from the threshold"
    domain = Domain.WHOLE

    def judge(self, item: "JudgedClaim", tasks: "Tasks") -> "Verdict":
        """The paper's rule in every task, and what intervals say."""
        from quarl_bench.papers.lqcc.sentences import judge_selected, read_printed

        return judge_selected(tasks, read_printed(item.claim), self.threshold)


@dataclass(frozen=True)
class OneReading(OnTasks):
    """Of the readings of the rule only one, a share `threshold` of them, selects what is printed."""

    name = "one_reading"
    meaning = "share of readings of the rule that select what is printed; supported up to the threshold"
    domain = Domain.WHOLE

    def judge(self, item: "JudgedClaim", tasks: "Tasks") -> "Verdict":
        """A replay of every reading, exact."""
        from quarl_bench.papers.lqcc.sentences import judge_sensitivity, read_printed

        return judge_sensitivity(tasks, read_printed(item.claim), self.threshold)
