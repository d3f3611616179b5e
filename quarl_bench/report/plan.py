"""What would decide an undecided claim: which policies to train, for how long, or why no number of seeds does."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from quarl_bench.errors import SpecError
from quarl_bench.experiments.cells import MOST
from quarl_bench.experiments.durations import Training, estimate_cost, list_seeds
from quarl_bench.experiments.member import FP32
from quarl_bench.judging.claim import JudgedCase
from quarl_bench.judging.power import COUNTS, Item, Spread, Spreads, count_policies
from quarl_bench.judging.retention import FEWEST
from quarl_bench.judging.rules.cells import Keeps
from quarl_bench.judging.rules.judgement import Axis
from quarl_bench.judging.rules.returns import OnReturns, Tracks
from quarl_bench.judging.rules.training import OnTimes, Wider
from quarl_bench.judging.statistics import POWER
from quarl_bench.papers.registry import PAPERS
from quarl_bench.quantization.scheme import Scheme
from quarl_bench.spec import UNDECIDED, ZOO, Case, PolicySpec, Source
from quarl_bench.training.multi_seed.recipe import ORIGIN as MANY_SEEDS
from quarl_bench.training.recipes import name_reference
from quarl_bench.views.rows import Row

DECIDED = "decided already"
POLICIES = "decided by more policies"
FIRST = "needs its first policies"
NOT_BY_SEEDS = "cannot be decided by more seeds"
NOT_PLANNED = "not planned"
ANSWERS = (POLICIES, FIRST, NOT_BY_SEEDS, NOT_PLANNED, DECIDED)  # in the order in which they are listed
NO_ROW = ("", FP32)  # what is compared with these needs no row of another scheme
CELL_RULES = ("retention", "drops")  # of rows that tell how the policies of one cell differ


@dataclass(frozen=True)
class Wanted:
    """Policies of one kind to train: their seeds, steps of each, hours of one core for all, and what these rest on."""

    algo: str
    environment: str
    scheme: str
    origin: str
    seeds: tuple[int, ...]
    steps: int | None
    hours: float | None
    basis: str


@dataclass(frozen=True)
class Plan:
    """The answer for one item; `policies` are of every cell, `outcome` is what they would decide."""

    item: Item
    row: Row | None
    answer: str
    why: str
    policies: int | None = None
    outcome: str = ""
    wanted: tuple[Wanted, ...] = field(default=())

    @property
    def hours(self) -> float | None:
        """Hours of one core for all that is to be trained; None where a part of it is unknown."""
        hours = [each.hours for each in self.wanted]
        return None if None in hours else sum(each for each in hours if each is not None)


class Planner:
    """Plans on the rows of stored results and on the trainings that are there."""

    def __init__(self, rows: Iterable[Row], trainings: Sequence[Training]) -> None:
        self._rows: dict[tuple[str, str], Row] = {(row.claim, row.id): row for row in rows}
        self._cells: dict[Case, Row] = {}
        for row in self._rows.values():
            if row.rule in CELL_RULES and row.interval is not None and not row.board:
                self._cells.setdefault(Case(row.algo, row.env, row.scheme, row.origin), row)
        self._trainings = tuple(trainings)
        papers = (paper for paper in PAPERS.values() if paper.records)
        self._recorded = {claim.id for paper in papers for claim in paper.read_claims()}

    def find_row(self, item: Item) -> Row | None:
        """The stored row of an item."""
        return self._rows.get((item.claim.id, item.id))

    def is_open(self, item: Item) -> bool:
        """Whether it was judged, and not decided."""
        row = self.find_row(item)
        return row is not None and row.verdict in UNDECIDED

    def plan(self, item: Item) -> Plan:
        """What would decide one item."""
        row = self.find_row(item)
        if row is not None and row.verdict not in UNDECIDED:
            return Plan(item, row, DECIDED, row.line or row.verdict)
        if reason := _find_limit(item, row):
            return Plan(item, row, NOT_BY_SEEDS, reason)
        missing = self._list_missing(item)
        if missing:
            wanted = self._train(missing, FEWEST)
            lacks = "1 kind of policy is" if len(missing) == 1 else f"{len(missing)} kinds of policy are"
            return Plan(item, row, FIRST, f"{lacks} missing", FEWEST, wanted=wanted)
        judgement = item.claim.judgement
        if not isinstance(judgement, Keeps | OnReturns) or isinstance(judgement, Tracks):
            return Plan(item, row, NOT_PLANNED, f"rows do not store what {judgement.name!r} is decided on")
        return self._plan_returns(item, row)

    def _plan_returns(self, item: Item, row: Row | None) -> Plan:
        spreads: dict[str, tuple[Spread, ...]] = {}
        alone, fewest = [], COUNTS[-1]
        for case in _list_cells(item):
            arms = [case, *(replace(case, scheme=scheme) for scheme in (_find_against(item),) if scheme not in NO_ROW)]
            rows = {arm.id: self._find_cell(item, row, arm) for arm in arms}
            known = [each for each in rows.values() if each is not None]
            if len(known) < len(rows):
                lacking = next(name for name, each in rows.items() if each is None)
                return Plan(item, row, NOT_PLANNED, f"no numbers of {lacking} are stored; name a file by --results")
            policies = min(int(each.reference.get("policies", 0)) for each in known)
            read = [spread for each in known if (spread := Spread.of(each)) is not None]
            if len(read) == len(rows):
                spreads[case.id] = _join(read, against_fp32=_find_against(item) == FP32)
            elif policies > 1:
                reason = known[0].needed or known[0].line
                return Plan(item, row, NOT_PLANNED, f"{case.id} has no interval: {reason}")
            else:
                alone.append(case)
            fewest = min(fewest, policies)
        if alone:
            wanted = self._train(_list_arms(item, alone), FEWEST)
            why = f"one policy of {alone[0].id} does not show how policies differ"
            return Plan(item, row, FIRST, why, FEWEST, wanted=wanted)
        return self._plan_power(item, row, spreads, fewest + 1)

    def _plan_power(self, item: Item, row: Row | None, spreads: Spreads, fewest: int) -> Plan:
        found = count_policies(item, spreads, fewest)
        if found is None:
            told = "" if row is None or row.estimate is None else f", {row.estimate:.3g},"
            why = (
                f"if the estimate{told} is the truth, {COUNTS[-1]} policies decide it in less than {POWER:.0%} of draws"
            )
            return Plan(item, row, NOT_BY_SEEDS, why)
        count, outcome = found
        wanted = self._train(_list_arms(item, _list_cells(item)), count)
        why = f"{outcome} in {POWER:.0%} of draws of {count} policies, if the estimate is the truth"
        return Plan(item, row, POLICIES, "; ".join([why, *_list_notes(item, count, wanted)]), count, outcome, wanted)

    def _find_cell(self, item: Item, row: Row | None, case: Case) -> Row | None:
        """The row that tells of a cell: of a case its own, where it has numbers."""
        own = row if isinstance(item, JudgedCase) and row is not None and row.reference else None
        return own or self._cells.get(case)

    def _list_missing(self, item: Item) -> list[PolicySpec]:
        """Policies of the item's cells of which there is not one."""
        if item.claim.id in self._recorded:
            return []
        specs = _list_arms(item, _list_cells(item))
        return [spec for spec in specs if not list_seeds(self._trainings, spec)]

    def _train(self, specs: Iterable[PolicySpec], count: int) -> tuple[Wanted, ...]:
        """The first seeds that are not there, so that there are `count` of each."""
        wanted = []
        for spec in specs:
            there = list_seeds(self._trainings, spec)
            new = [seed for seed in range(count + len(there)) if seed not in there][: max(0, count - len(there))]
            if new:
                cost = estimate_cost(self._trainings, spec)
                hours = None if cost.hours is None else cost.hours * len(new)
                wanted.append(
                    Wanted(
                        spec.algo, spec.environment, spec.scheme, spec.origin, tuple(new), cost.steps, hours, cost.basis
                    )
                )
        return tuple(wanted)


def rank(plans: Iterable[Plan]) -> list[Plan]:
    """What policies decide first, by hours, the unknown last; then the other answers in their order."""

    def weigh(plan: Plan) -> tuple[int, bool, float]:
        return ANSWERS.index(plan.answer), plan.hours is None, plan.hours or 0.0

    return sorted(plans, key=weigh)


def _find_limit(item: Item, row: Row | None) -> str:
    """Why training seeds are not what a verdict lacks; empty where they may be."""
    judgement = item.claim.judgement
    if judgement.boards or isinstance(judgement, OnTimes):
        return "it judges times or sizes: sessions on a quiet machine or board decide it"
    if item.claim.origin == ZOO:
        return f"its agents are others', one of each; {row.needed if row and row.needed else 'no more exist'}"
    if row is not None and row.source == Source.PUBLISHED:
        return "the runs are their authors', and no more of them exist"
    return ""


def _list_cells(item: Item) -> list[Case]:
    """The cells of an item, off any board."""
    cases = (item.case,) if isinstance(item, JudgedCase) else item.cases
    return [replace(case, board="") for case in cases]


def _join(arms: Sequence[Spread], *, against_fp32: bool) -> tuple[Spread, ...]:
    """The arms of a cell over as many episodes; fp32 keeps what it has."""
    episodes = min(each.episodes for each in arms)
    kept = [replace(each, episodes=episodes) for each in arms]
    return (*kept, *([replace(kept[0], kept=1.0, sd=0.0, shared=0.0)] if against_fp32 else []))


def _find_against(item: Item) -> str:
    return "" if isinstance(item, JudgedCase) else item.against


def _list_arms(item: Item, cells: Iterable[Case]) -> list[PolicySpec]:
    """The kinds of policy, seed 0 of each, that cells are measured on: in fp32, and trained under their schemes."""
    judgement, found = item.claim.judgement, []
    for case in cells:
        schemes = (case.scheme, _find_against(item))
        trained = [name for name in schemes if (scheme := _read_scheme(name)) is not None and scheme.trained]
        origin = name_reference(case.algo, case.environment, case.origin) if trained else case.origin
        found.append(PolicySpec(case.algo, case.environment, 0, origin))
        if isinstance(judgement, Wider):
            found.append(PolicySpec(judgement.than, case.environment, 0, judgement.than_origin or case.origin))
        if judgement.axis is Axis.PRECISIONS:
            found.append(PolicySpec(case.algo, case.environment, 0, case.scheme))
        found += [PolicySpec(case.algo, case.environment, 0, case.origin, name) for name in trained]
    return list(dict.fromkeys(found))


def _read_scheme(name: str) -> Scheme | None:
    """None for what is no scheme: a statistic of weights, or a precision."""
    try:
        return Scheme.parse(name) if name else None
    except SpecError:
        return None


def _list_notes(item: Item, count: int, wanted: Sequence[Wanted]) -> list[str]:
    """What stands between the policies and the verdict."""
    notes = []
    if not wanted:
        notes.append("they are there: run it again")
    if count > MOST and not item.claim.origin.startswith(MANY_SEEDS):
        notes.append(f"a cell plays at most {MOST} policies today")
    if any((scheme := _read_scheme(case.scheme)) and scheme.repaired for case in _list_cells(item)):
        notes.append("every new policy is repaired as well, which is not counted")
    return notes
