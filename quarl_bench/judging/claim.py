"""Claims, and the cases and items that they expand to. Standard library only: the plugin reads them at collection.

A claim is a value beside its paper: where the sentence stands, what it says, how it is judged, and in which cells. One
whose judgement is of single cells is judged in each of them, a case; any other is one sentence over all its cells.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

from quarl_bench.errors import SpecError
from quarl_bench.judging.rules.judgement import Judgement
from quarl_bench.policies.algorithm import ALGORITHMS
from quarl_bench.spec import ID_PART, Case

DISTRIBUTED = ("d4pg",)  # algorithms that only ActorQ trains
ALL = "all"  # the scheme part of an item that is about all schemes of its claim
# All our 8-bit schemes answer the paper's "int8".
PAPER_COLUMN = {"fp16": "fp16", "w8": "w8", "int8": "w8", "int8uncal": "w8", "fp32": "fp32"}

J = TypeVar("J", bound=Judgement)
Cell = tuple[str, str]  # algorithm and environment


def over(algos: str, environments: str) -> tuple[Cell, ...]:
    """Cells of every algorithm in every environment, both separated by blanks: `over("a2c ppo", "pong qbert")`."""
    return tuple((algo, environment) for algo in algos.split() for environment in environments.split())


@dataclass(frozen=True)
class Claim:
    """One sentence of a paper, or of ours.

    `schemes` are what is judged; the judgement says what these names are. `slug` is the middle part of an item's id,
    by default the first word of the claim's. `table` names the paper's own numbers for the cells. What a paper's files
    add is filled in when they are read: its title, its numbers in `values`, by cell and column, and in `known` the
    items that do not reproduce, with the reason, as `find_known` names them. SpecError, with claim and field, for a
    value that makes no sense.
    """

    id: str
    where: str
    says: str
    judgement: Judgement
    schemes: tuple[str, ...]
    cells: tuple[Cell, ...]
    boards: tuple[str, ...] = ("",)
    slug: str = ""
    origin: str = ""  # of the cells
    pooled: bool = False  # one item over all algorithms instead of one for each
    replay: bool = False  # circular: a rule on the data that it was chosen from, or arithmetic on what is printed
    table: str = ""
    remarks: tuple[str, ...] = ()  # on those numbers, said beside them in the claim's rows
    paper: str = "ours"
    known: dict[str, str] = field(default_factory=dict)
    values: dict[Cell, dict[str, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse what could only fail when it is judged."""
        if not isinstance(self.judgement, Judgement):
            raise self.error("judgement", f"{self.judgement!r} is no judgement; take one of quarl_bench.judging.rules")
        try:
            self.judgement.check()
        except SpecError as error:
            raise self.error("judgement", str(error)) from error
        for name in self.schemes:
            self._check("schemes", self.judgement.axis.check, name)
        self._check("schemes", self.judgement.check_schemes, self.schemes)
        for name in ("slug", "origin"):
            value = getattr(self, name)
            if value and not ID_PART.fullmatch(value):
                raise self.error(name, f"{value!r} must be one or more of [a-z0-9]")
        if not self.judgement.each and not ID_PART.fullmatch(self.middle):
            raise self.error("slug", f"{self.middle!r} must be one or more of [a-z0-9]")
        for algo, environment in self.cells:
            if algo not in DISTRIBUTED and algo not in ALGORITHMS:
                known = ", ".join((*ALGORITHMS, *DISTRIBUTED))
                raise self.error("cells", f"unknown algorithm {algo!r}; known are {known}")
            self._check("cells", lambda name: Case("ppo", name, "fp32"), environment)
        if self.judgement.pair and len(set(self.cells)) != 2:
            raise self.error("cells", f"{self.judgement.name} compares two cells, the first with the second; name two")

    @property
    def middle(self) -> str:
        """The middle part of an item's id."""
        return self.slug or self.id.split("-", maxsplit=1)[0]

    @property
    def threshold(self) -> float:
        """What decides; it stands in the judgement alone."""
        return self.judgement.threshold

    def find_known(self, name: str, profile: str, processor: str) -> str:
        """The reason why item `name` does not reproduce; empty where there is none.

        Of times and resident memory it is about one processor, `<item> on <processor>`; of anything else about every
        profile, `<item>`, or about one, `<item> in <profile>`.
        """
        names = (f"{name} on {processor}",) if self.judgement.timed else (name, f"{name} in {profile}")
        return next((self.known[each] for each in names if each in self.known), "")

    def require(self, kind: type[J]) -> J:
        """The judgement, which has to be of this kind; SpecError where a test asks for another one's verdict."""
        if not isinstance(self.judgement, kind):
            raise self.error(
                "judgement", f"{type(self.judgement).__name__} is no {kind.__name__}: it takes another fixture"
            )
        return self.judgement

    def error(self, name: str, what: str) -> SpecError:
        """An error that names this claim and its field `name`."""
        return SpecError(f"claim {self.id!r}, field {name!r}: {what}")

    def _check(self, name: str, check: Any, value: object) -> None:
        try:
            check(value)
        except (SpecError, TypeError, ValueError, AttributeError) as error:
            raise self.error(name, str(error)) from error


@dataclass(frozen=True)
class JudgedCase:
    """One cell of a claim: what a parametrized test measures and judges."""

    claim: Claim
    case: Case

    @property
    def id(self) -> str:
        """The pytest id, `<algo>-<env>-<scheme>[-<origin>][-<board>]`."""
        return self.case.id

    def find_known(self, profile: str = "", processor: str = "") -> str:
        """Why this case is expected not to reproduce, in a profile or on a processor; empty when it is not."""
        return self.claim.find_known(self.id, profile, processor)

    @property
    def paper_values(self) -> dict[str, float] | None:
        """The paper's returns of this cell, fp32 and quantized; None where it has none."""
        row = self.claim.values.get((self.case.algo, self.case.environment))
        column = PAPER_COLUMN.get(self.case.scheme)
        if row is None or column not in row:
            return None
        return {"reference": float(row["fp32"]), "value": float(row[column])}


@dataclass(frozen=True)
class JudgedClaim:
    """One sentence over many cells, `<algo>-<the claim's slug>-<scheme>[-<board>]`, or over all schemes of one cell."""

    claim: Claim
    algo: str
    scheme: str
    cases: tuple[Case, ...]
    environment: str = ""  # where it is about one cell

    @property
    def id(self) -> str:
        """The pytest id, `<algo>-<slug>-<scheme>[-<board>]`; about one cell `<algo>-<environment>-<slug>`."""
        if self.environment:
            return f"{self.algo}-{self.environment}-{self.claim.middle}"
        name = f"{self.algo}-{self.claim.middle}-{self.scheme}"
        return f"{name}-{self.board}" if self.board else name

    @property
    def board(self) -> str:
        """Where its cells are measured, in judgements on boards."""
        return self.cases[0].board if self.cases else ""

    @property
    def against(self) -> str:
        """The scheme it is compared with; empty where that is none."""
        return self.claim.judgement.find_against(self.scheme)

    def find_known(self, profile: str = "", processor: str = "") -> str:
        """Why this claim is expected not to reproduce, in a profile or on a processor; empty when it is not."""
        return self.claim.find_known(self.id, profile, processor)


def expand_cases(claim: Claim) -> Iterator[JudgedCase]:
    """Every cell, scheme and board of a claim about single cells, in its order."""
    for algo, environment in claim.cells:
        for scheme in claim.schemes:
            for board in claim.boards:
                yield JudgedCase(claim, Case(algo, environment, scheme, claim.origin, board))


def expand_claims(claim: Claim) -> Iterator[JudgedClaim]:
    """One item per scheme and board, and per algorithm unless it is pooled, of a claim over many cells.

    A count, and an order of schemes, is one item over all cells and schemes; a comparison of two cells is pooled; the
    schemes of a cell, compared with each other, are one item for each cell.
    """
    over_schemes = {
        (a, environment): tuple(Case(a, environment, scheme, claim.origin) for scheme in claim.schemes)
        for a, environment in claim.cells
    }
    if claim.judgement.whole:
        yield JudgedClaim(claim, ALL, ALL, tuple(case for cases in over_schemes.values() for case in cases))
        return
    if claim.judgement.by_cell:
        for (algo, environment), cases in over_schemes.items():
            yield JudgedClaim(claim, algo, ALL, cases, environment)
        return
    pooled = claim.pooled or claim.judgement.pair
    for algo in (ALL,) if pooled else dict.fromkeys(algo for algo, _ in claim.cells):
        for scheme in claim.schemes:
            cells = [cell for cell in claim.cells if algo in (cell[0], ALL)]
            for board in claim.boards:
                cases = tuple(Case(a, environment, scheme, claim.origin, board) for a, environment in cells)
                yield JudgedClaim(claim, algo, scheme, cases)


def expand(claim: Claim) -> list[JudgedCase] | list[JudgedClaim]:
    """The cases, or the items, of a claim."""
    return [*expand_cases(claim)] if claim.judgement.each else [*expand_claims(claim)]
