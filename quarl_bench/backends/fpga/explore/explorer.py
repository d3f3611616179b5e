"""The fastest folding of a policy that a part holds: formulas first, synthesis to confirm."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, product
from math import prod

from quarl_bench.backends.fpga.explore.estimate import estimate, estimate_least
from quarl_bench.backends.fpga.explore.folding import Folding, FoldingPlan, choose_steps
from quarl_bench.backends.fpga.explore.part import PARTS, Part, Resources
from quarl_bench.backends.fpga.explore.unit import Unit
from quarl_bench.backends.fpga.rtl.stage import Stage
from quarl_bench.errors import DeploymentError

SPARE = 0.1  # share of the part that stays free
LEVELS = (2, 3)  # adder levels between registers
TRIES = 4  # designs that are synthesised at most
WIDE_STEPS = (2, 3)  # bits a search stage finds of outputs that are too wide for one
MOST_PRODUCTS = 4096  # in one cycle: more never fits
MOST_FOLDINGS = 30_000  # up to as many every number of beats is looked at, above it powers of two alone


@dataclass(frozen=True, eq=False)
class Candidate:
    """A folding, its cycles and its estimated size."""

    plan: FoldingPlan
    resources: Resources

    @property
    def cycles(self) -> int:
        """From the first beat of an observation to the action."""
        return self.plan.cycles


def explore(stages: Sequence[Stage], part: Part, in_lanes: int | None = None, spare: float = SPARE) -> list[Candidate]:
    """All foldings worth a look, fastest first; `in_lanes` input values a cycle (all of them unless given).

    DeploymentError where there is none.
    """
    found = [Candidate(plan, estimate(plan)) for plan in _fold_all(tuple(stages), part, in_lanes, spare)]
    if not found:
        raise DeploymentError(
            f"fpga: every folding computes more than {MOST_PRODUCTS} products a cycle; stream fewer values (--stream), "
            "or use a narrower policy"
        )
    return sorted(found, key=lambda candidate: (candidate.cycles, candidate.resources.bottleneck(part)[1]))


@dataclass(frozen=True)
class Shortage:
    """Why no folding is faster: of `count` that take `cycles` at most none fits; `nearest` is short of `bound`."""

    cycles: int
    count: int
    nearest: Candidate
    bound: str
    share: float  # of the part

    def describe(self, spare: float = SPARE) -> str:
        """A sentence, without a full stop."""
        lanes = "-".join(map(str, self.nearest.plan.folding.lanes))
        return (
            f"none of the {self.count:,} foldings of at most {self.cycles} cycles fits by estimate: the nearest (lanes "
            f"{lanes}, {self.nearest.cycles} cycles) takes {self.share:.0%} of the {self.bound}, where {1 - spare:.0%} "
            "may be taken"
        )


def find_shortage(candidates: Sequence[Candidate], part: Part, cycles: int, spare: float = SPARE) -> Shortage | None:
    """What is short for `cycles` at most; None where a candidate that fits does, or where none is so fast at all."""
    fast = [candidate for candidate in candidates if candidate.cycles <= cycles]
    if not fast:
        return None
    nearest = min(fast, key=lambda candidate: candidate.resources.bottleneck(part)[1])
    if fits(nearest.resources, part, spare):
        return None
    return Shortage(cycles, len(fast), nearest, *nearest.resources.bottleneck(part))


def find_fastest(stages: Sequence[Stage], part: Part, spare: float = SPARE) -> Candidate | None:
    """The first of `explore` that fits, or None; sizes of those that are slower, or too large anyway, are left out."""
    least: dict[Unit, float] = {}

    def may_fit(plan: FoldingPlan) -> bool:
        least.update({unit: estimate_least(unit) for unit in plan.units if unit not in least})
        return sum(least[unit] for unit in plan.units) <= (1 - spare) * part.luts + 1  # which estimates round

    plans = sorted(_fold_all(tuple(stages), part, None, spare), key=lambda plan: plan.cycles)
    for _, equal in groupby(filter(may_fit, plans), key=lambda plan: plan.cycles):
        candidates = [Candidate(plan, estimate(plan)) for plan in equal]
        best = min(candidates, key=lambda candidate: candidate.resources.bottleneck(part)[1])
        if fits(best.resources, part, spare):
            return best
    return None


def fits(resources: Resources, part: Part, spare: float = SPARE) -> bool:
    """Whether a design leaves `spare` of every resource free."""
    return resources.bottleneck(part)[1] <= 1 - spare


def find_pareto(candidates: Sequence[Candidate], part: Part) -> list[Candidate]:
    """Of candidates sorted by cycles, those for which no faster one takes less of the part's scarcest resource."""
    front: list[Candidate] = []
    least = float("inf")
    for candidate in candidates:
        share = candidate.resources.bottleneck(part)[1]
        if share < least:
            front.append(candidate)
            least = share
    return front


def choose(
    candidates: Sequence[Candidate],
    part: Part,
    confirm: Callable[[FoldingPlan], bool],
    spare: float = SPARE,
    tries: int = TRIES,
) -> Candidate:
    """The fastest candidate that fits by estimate and by `confirm`; DeploymentError that says what is short."""
    fitting = [candidate for candidate in candidates if fits(candidate.resources, part, spare)]
    if not fitting:
        raise DeploymentError(_explain(candidates, part, spare))
    for candidate in fitting[:tries]:
        if confirm(candidate.plan):
            return candidate
    raise DeploymentError(
        f"fpga: none of the {min(tries, len(fitting))} fastest foldings that should fit {part.name} does after "
        "synthesis; raise --spare, which moves the estimate's limit"
    )


def _explain(candidates: Sequence[Candidate], part: Part, spare: float) -> str:
    nearest = min(candidates, key=lambda candidate: candidate.resources.bottleneck(part)[1])
    name, share = nearest.resources.bottleneck(part)
    lanes = "-".join(map(str, nearest.plan.folding.lanes))
    larger = next((other.name for other in PARTS.values() if fits(nearest.resources, other, spare)), None)
    held = f"{larger} holds it" if larger else "no known part holds it"
    return (
        f"fpga: {part.name} does not hold this policy: the nearest folding (lanes {lanes}, {nearest.cycles} cycles) "
        f"takes {share:.0%} of its {name}, {share - (1 - spare):.0%} more than there is with {spare:.0%} to spare; "
        f"{held}: use a larger part, fewer bits or a narrower policy"
    )


def _fold_all(stages: tuple[Stage, ...], part: Part, in_lanes: int | None, spare: float) -> Iterator[FoldingPlan]:
    first = in_lanes or stages[0].inputs
    choices = [_list_lanes(stage.outputs, range(1, stage.outputs + 1)) for stage in stages]
    if len(WIDE_STEPS) * len(LEVELS) * prod(map(len, choices)) > MOST_FOLDINGS:
        choices = [_list_lanes(stage.outputs, _list_powers(stage.outputs)) for stage in stages]
    shared: dict[tuple[int, ...], Unit] = {}
    for lanes, step, levels in product(product(*choices), WIDE_STEPS, LEVELS):
        blocks, dsps = (1 - spare) * part.block_rams, int((1 - spare) * part.dsps)
        folding = Folding((first, *lanes), choose_steps(stages, wide_step=step), levels, blocks, dsps)
        plan = FoldingPlan(stages, folding, shared)
        if all(unit.multipliers <= MOST_PRODUCTS for unit in plan.units):
            yield plan


def _list_lanes(outputs: int, lanes: Iterable[int]) -> list[int]:
    """Of `lanes` that take equally many beats the smallest."""
    return sorted({-(-outputs // -(-outputs // one)) for one in lanes})


def _list_powers(outputs: int) -> set[int]:
    """Powers of two, and all at once."""
    return {*(1 << k for k in range(outputs.bit_length())), outputs}
