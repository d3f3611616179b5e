"""Judgements on a return against bits: every width of a cell at once."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from quarl_bench.errors import SpecError
from quarl_bench.judging.rules.judgement import Domain, Judgement
from quarl_bench.quantization.scheme import Scheme

if TYPE_CHECKING:
    from quarl_bench.experiments.cells import Cells
    from quarl_bench.judging.claim import JudgedClaim
    from quarl_bench.judging.evidence import Evidence
    from quarl_bench.spec import Verdict
    from quarl_bench.views.panel import Panel


@dataclass(frozen=True)
class OnWidths(Judgement):
    """Decided from returns of cells under all schemes of the claim, each a width."""

    def collect(self, cells: "Cells", item: "JudgedClaim") -> "Evidence":
        """fp32 and every scheme of every cell that has policies."""
        from quarl_bench.judging.evidence import collect_widths

        return collect_widths(cells, item)

    def show(self, item: "JudgedClaim", evidence: "Evidence") -> "Sequence[Panel]":
        """Return against bits, a panel for each cell."""
        from quarl_bench.judging.evidence import split_widths
        from quarl_bench.judging.widths import draw_widths

        curves = split_widths(item, evidence).items()
        return [draw_widths(item.claim.where, name, curve) for name, (_, curve) in curves]


@dataclass(frozen=True)
class Fewest(OnWidths):
    """So many bits, `threshold`, and every width above cost the cell less than `margin` of its return."""

    margin: float

    name = "fewest_bits"
    meaning = (
        "the fewest bits from which on every width keeps the return, one cell, widths asked in a fixed order; "
        "supported up to the threshold"
    )
    domain = Domain.NUMBER
    by_cell = True

    def check(self) -> None:
        """SpecError for bits or a margin out of range."""
        super().check()
        if not Domain.SHARE.holds(self.margin):
            raise SpecError(f"margin {self.margin!r} must be {Domain.SHARE.value}")

    def check_schemes(self, schemes: "Sequence[str]") -> None:
        """SpecError where the threshold is none of their widths: what loses below it says nothing about it."""
        widths = sorted({Scheme.parse(scheme).bit_width for scheme in schemes})
        if self.threshold not in widths:
            told = ", ".join(map(str, widths))
            raise SpecError(f"no scheme has {self.threshold:g} bits, which is the threshold; these have {told}")

    def decide(self, item: "JudgedClaim", evidence: "Evidence") -> "Verdict":
        """A fixed sequence of tests from either end."""
        from quarl_bench.judging.evidence import split_widths
        from quarl_bench.judging.widths import judge_fewest_bits

        (environment, curve) = next(iter(split_widths(item, evidence).values()), (item.environment, {}))
        return judge_fewest_bits(environment, curve, margin=self.margin, most=self.threshold, missing=evidence.missing)


@dataclass(frozen=True)
class SweetSpots(OnWidths):
    """More than `threshold` of the cells has a width at which it returns more than fp32."""

    name = "sweet_spots"
    meaning = "share of cells that return more than fp32 at one of the widths; supported above the threshold"
    whole = True

    def decide(self, item: "JudgedClaim", evidence: "Evidence") -> "Verdict":
        """A census of cells, those that are missing included."""
        from quarl_bench.judging.evidence import split_widths
        from quarl_bench.judging.widths import judge_sweet_spots

        return judge_sweet_spots(split_widths(item, evidence), threshold=self.threshold, missing=evidence.missing)
