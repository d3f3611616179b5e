"""Judgements on the returns of many cells: averages, censuses, and one scheme or cell against another."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from quarl_bench.errors import SpecError
from quarl_bench.judging.rules.judgement import STATISTICS, Axis, Domain, Judgement
from quarl_bench.quantization.scheme import Scheme

if TYPE_CHECKING:
    from quarl_bench.experiments.cells import Cells
    from quarl_bench.judging.claim import JudgedClaim
    from quarl_bench.judging.evidence import Evidence
    from quarl_bench.spec import Measurement, Verdict

    Measured = Mapping[str, tuple[Measurement, ...]]  # by cell: fp32, the scheme, and what it is compared with

# As `against`: the scheme of that family with as many bits as the judged one.
FAMILIES = {"w": "w{}", "int": "int{}", "qat": "qat{}"}


@dataclass(frozen=True)
class OnReturns(Judgement):
    """Decided from returns; where cells were measured with sampled actions too, the weaker verdict counts."""

    def decide(self, item: "JudgedClaim", evidence: "Evidence") -> "Verdict":
        """The verdict on argmax and, where there are, on sampled actions."""
        from quarl_bench.judging.modes import weaken

        return weaken([self.judge(item, mode, evidence) for mode in evidence.split_modes()])

    def judge(self, item: "JudgedClaim", measured: "Measured", evidence: "Evidence") -> "Verdict":
        """The verdict on one way of acting."""
        raise NotImplementedError


@dataclass(frozen=True)
class Against(OnReturns):
    """Compares the judged scheme with the one called `against`."""

    against: str

    def check(self) -> None:
        """SpecError for a threshold out of range, or for what is neither a scheme nor a family of them."""
        super().check()
        if self.against not in FAMILIES:
            Axis.SCHEMES.check(self.against)

    def find_against(self, scheme: str) -> str:
        """The scheme compared with: of a family, that with as many bits as the item's."""
        return FAMILIES.get(self.against, self.against).format(Scheme.parse(scheme).bit_width)


@dataclass(frozen=True)
class MeanError(OnReturns):
    """The mean over cells of the relative loss is below `threshold`."""

    name = "mean_error"
    meaning = "mean over cells of the relative loss of return; supported below the threshold"

    def judge(self, item: "JudgedClaim", measured: "Measured", evidence: "Evidence") -> "Verdict":
        """Stratified Welch over cells, or t over tasks with one policy each."""
        from quarl_bench.judging.average import judge_mean_error

        pairs = {name: (group[0], group[1]) for name, group in measured.items()}
        caps = evidence.find_caps(item)
        return judge_mean_error(pairs, threshold=self.threshold, caps=caps, missing=evidence.missing)


@dataclass(frozen=True)
class MeanLoss(MeanError):
    """The mean over cells of the relative loss is above `threshold`."""

    name = "mean_loss"
    meaning = "mean over cells of the relative loss of return; supported above the threshold"

    def judge(self, item: "JudgedClaim", measured: "Measured", evidence: "Evidence") -> "Verdict":
        """The opposite sentence, by the same interval."""
        from quarl_bench.judging.retention import reverse

        return reverse(super().judge(item, measured, evidence))


@dataclass(frozen=True)
class Equivalent(Against):
    """Two schemes lose alike: the mean difference lies within +- `threshold`."""

    name = "equivalence"
    meaning = "mean difference between two schemes' losses; supported within +- threshold"

    def judge(self, item: "JudgedClaim", measured: "Measured", evidence: "Evidence") -> "Verdict":
        """Two one-sided tests on the mean difference."""
        from quarl_bench.judging.average import judge_equivalence

        triples = {name: (group[0], group[1], group[2]) for name, group in measured.items()}
        caps = evidence.find_caps(item)
        return judge_equivalence(triples, margin=self.threshold, caps=caps, missing=evidence.missing)


@dataclass(frozen=True)
class Gains(Against):
    """On a typical task the scheme loses less than the other one, by more than `threshold`."""

    name = "gains"
    meaning = "per task, loss under the other scheme minus loss under this one; supported above the threshold"
    domain = Domain.NUMBER

    def judge(self, item: "JudgedClaim", measured: "Measured", evidence: "Evidence") -> "Verdict":  # noqa: ARG002
        """Sign flips over tasks, of relative errors."""
        from quarl_bench.judging.average import measure_gain
        from quarl_bench.judging.evidence import name_flaws
        from quarl_bench.judging.pairs import find_error
        from quarl_bench.judging.tasks import average_tasks, judge_gains, pool_tasks

        anchored, notes = name_flaws(measured)
        gains = {name: find_error(m[0], m[2]) - find_error(m[0], m[1]) for name, m in anchored.items()}
        within = {name: measure_gain(m[0], m[1], m[2]) for name, m in anchored.items()}
        return judge_gains(
            average_tasks(gains), policies=evidence.policies, missing=evidence.missing, threshold=self.threshold,
            notes=notes, within=pool_tasks(within),
        )  # fmt: skip


@dataclass(frozen=True)
class Varies(Against):
    """On a typical task mean returns vary more than `threshold` times as much between policies as under the other."""

    name = "varies"
    meaning = (
        "ratio of the SDs of policies' mean returns, this scheme over the other, over tasks; supported above the "
        "threshold"
    )
    domain = Domain.RATIO

    def judge(self, item: "JudgedClaim", measured: "Measured", evidence: "Evidence") -> "Verdict":  # noqa: ARG002
        """Sign flips over tasks, of logarithms; a cell counts where policies differ under both schemes."""
        import math

        from quarl_bench.judging.average import compare_spreads
        from quarl_bench.judging.tasks import average_tasks, judge_wider

        pairs = {name: compare_spreads(group[1], group[2]) for name, group in measured.items()}
        logs = average_tasks({name: math.log(ratio) for name, ratio in pairs.items() if ratio is not None})
        alike = tuple(name for name, ratio in pairs.items() if ratio is None)
        verdict = judge_wider(
            {task: math.exp(log) for task, log in logs.items()}, policies=evidence.policies,
            missing=evidence.missing if logs else (*evidence.missing, *alike), threshold=self.threshold,
            caveat="the SD of few policies is uncertain",
        )  # fmt: skip
        notes = (f"left out: policies of {name} do not differ" for name in alike)
        return replace(verdict, caveats=(*verdict.caveats, *notes))


@dataclass(frozen=True)
class MostCells(OnReturns):
    """At least a `share` of the cells keeps 1 - `threshold` of the return."""

    share: float = 0.8

    name = "most_cells"
    meaning = "share of cells that keep 1 - threshold of the return; supported from the claim's share of them"

    def check(self) -> None:
        """SpecError for a margin or a share out of range."""
        super().check()
        if not Domain.WHOLE.holds(self.share):
            raise SpecError(f"share {self.share!r} must be {Domain.WHOLE.value}")

    def judge(self, item: "JudgedClaim", measured: "Measured", evidence: "Evidence") -> "Verdict":
        """A census of cells, by partial conjunction."""
        from quarl_bench.judging.census import judge_most_cells

        pairs = {name: (group[0], group[1]) for name, group in measured.items()}
        caps = evidence.find_caps(item)
        return judge_most_cells(pairs, margin=self.threshold, share=self.share, caps=caps, missing=evidence.missing)


@dataclass(frozen=True)
class SomeCells(OnReturns):
    """More than `threshold` of the cells returns more than fp32."""

    name = "some_cells"
    meaning = "share of cells that return more than fp32; supported above the threshold"

    def judge(self, item: "JudgedClaim", measured: "Measured", evidence: "Evidence") -> "Verdict":
        """A census of cells, those that are missing included."""
        from quarl_bench.judging.census import judge_some_cells

        pairs = {name: (group[0], group[1]) for name, group in measured.items()}
        caps = evidence.find_caps(item)
        return judge_some_cells(pairs, threshold=self.threshold, caps=caps, missing=evidence.missing)


@dataclass(frozen=True)
class Loses(Against):
    """In one cell the scheme costs more than `threshold` of what the other one returns."""

    name = "loses"
    meaning = "ratio of mean returns of one cell, of the scheme over another one; supported below 1 - threshold"

    def judge(self, item: "JudgedClaim", measured: "Measured", evidence: "Evidence") -> "Verdict":
        """The opposite of keeping, against the other scheme."""
        from quarl_bench.judging.retention import judge_loss

        name, group = next(iter(measured.items()), ("", None))
        pair = None if group is None else (group[2], group[1])
        cap = evidence.find_caps(item).get(name)
        return judge_loss(pair, margin=self.threshold, cap=cap, missing=evidence.missing)


@dataclass(frozen=True)
class Harder(OnReturns):
    """The first of two cells loses more of its return than the second, by more than `threshold`."""

    name = "harder"
    meaning = "relative loss of the first of two cells minus that of the second; supported above the threshold"
    domain = Domain.NUMBER
    pair = True

    def judge(self, item: "JudgedClaim", measured: "Measured", evidence: "Evidence") -> "Verdict":
        """The difference of two cells' losses."""
        from quarl_bench.judging.retention import judge_harder

        pairs = {name: (group[0], group[1]) for name, group in measured.items()}
        caps, (first, second) = evidence.find_caps(item), (case.id for case in item.cases)
        return judge_harder(
            pairs.get(first), pairs.get(second), threshold=self.threshold, caps=(caps.get(first), caps.get(second)),
            missing=evidence.missing,
        )  # fmt: skip


@dataclass(frozen=True)
class Tracks(OnReturns):
    """Over cells the loss grows with a `statistic` of the weights; `threshold` is the level of the test."""

    statistic: str

    name = "tracks"
    meaning = (
        "rank correlation between the spread of weights and the loss, over cells; the threshold is the test's level"
    )

    def check(self) -> None:
        """SpecError for a level out of range or an unknown statistic."""
        super().check()
        if self.statistic not in STATISTICS:
            raise SpecError(f"statistic {self.statistic!r} must be one of {', '.join(STATISTICS)}")

    def collect(self, cells: "Cells", item: "JudgedClaim") -> "Evidence":
        """Returns, and the spread of each cell's fp32 weights."""
        from quarl_bench.judging.evidence import collect_returns

        return collect_returns(cells, item, statistic=self.statistic)

    def judge(self, item: "JudgedClaim", measured: "Measured", evidence: "Evidence") -> "Verdict":  # noqa: ARG002
        """Spearman's correlation by permutation."""
        from quarl_bench.judging.evidence import name_flaws
        from quarl_bench.judging.pairs import find_error
        from quarl_bench.judging.tasks import judge_tracks

        anchored, notes = name_flaws(measured)
        points = {name: (evidence.spreads[name], find_error(m[0], m[1])) for name, m in anchored.items()}
        return judge_tracks(
            points, policies=evidence.policies, missing=evidence.missing, threshold=self.threshold, notes=notes
        )


@dataclass(frozen=True)
class Count(Judgement):
    """There are more than `threshold` cases with policies."""

    name = "count"
    meaning = "how many cases have policies; supported above the threshold"
    domain = Domain.NUMBER
    whole = True

    def collect(self, cells: "Cells", item: "JudgedClaim") -> "Evidence":
        """Which cases have policies; nothing is measured."""
        from quarl_bench.judging.evidence import list_present

        return list_present(cells, item)

    def decide(self, item: "JudgedClaim", evidence: "Evidence") -> "Verdict":
        """A count, which needs no interval."""
        from quarl_bench.judging.census import judge_count

        present = len(item.cases) - len(evidence.missing)
        return judge_count(present, threshold=self.threshold, missing=evidence.missing)
