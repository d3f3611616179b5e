"""The papers by name: rooms above reach one here, and import none of its modules.

A paper is a room of `papers/`, or an entry point of others' in `quarl_bench.papers`. It brings its claims as values
(`claims.CLAIMS`), and may bring its own numbers (`numbers.toml`), what is known not to reproduce (`known.toml`),
what else it `provides`, and the headings of the page's galleries. Nothing heavy is imported: the plugin reads the
claims at collection.
"""

import importlib
import importlib.resources
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import Any

from quarl_bench.errors import SpecError
from quarl_bench.judging.claim import Claim
from quarl_bench.spec import ZOO
from quarl_bench.system.imports import SEPARATOR, import_attribute
from quarl_bench.system.registry import Registry

HOW_TO = "docs/extending/add_claim.md shows how"


@dataclass(frozen=True)
class Paper:
    """One paper. `headings` are of the galleries that redraw its figures, by what is drawn."""

    name: str
    title: str
    package: str = ""  # its room, where it has one: its claims, data files and modules
    claims: tuple[Claim, ...] = ()  # by default those of its room
    headings: Mapping[str, str] = field(default_factory=dict)
    provides: tuple[str, ...] = ()  # tables, selection, architectures, navigation, statements: asked for above
    records: bool = False  # whether its claims are about committed records, not about policies

    def open(self, module: str) -> ModuleType:
        """A module of the paper's own, by name; what the paper does alone is asked of it."""
        return importlib.import_module(f"{self.package}.{module}")

    def read_claims(self) -> tuple[Claim, ...]:
        """Its claims, with the paper's numbers and with what is known not to reproduce, in its order."""
        numbers, known = self._read("numbers.toml"), self._read("known.toml")
        claims: tuple[Claim, ...] = self.claims or self.open("claims").CLAIMS
        if strange := known.keys() - {claim.id for claim in claims}:
            raise SpecError(f"{self.name}/known.toml: {', '.join(sorted(strange))}: no claims of this paper")
        return tuple(
            replace(
                claim,
                paper=self.title,
                known=claim.known | known.get(claim.id, {}),
                values=claim.values | _find_values(claim, numbers),
            )
            for claim in claims
        )

    def _read(self, file: str) -> dict[str, Any]:
        if not self.package:
            return {}
        path = importlib.resources.files(self.package) / file
        return tomllib.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def _find_values(claim: Claim, numbers: Mapping[str, Any]) -> dict[tuple[str, str], dict[str, float]]:
    """The paper's own numbers by cell: of the claim's table, by default the one that its id begins with."""
    table = numbers.get(claim.table or claim.id.split("-", maxsplit=1)[0], {})
    return {(algo, environment): row for algo, rows in table.items() for environment, row in rows.items()}


QUARL_HEADINGS = {
    "bits": "Return against bits (QuaRL, Figure 1)",
    "exploration": "Exploration (QuaRL, ICLR text, Figure 1)",
    "weights": "Weights (QuaRL, Figures 2 and 3)",
    "memory": "Memory over time (QuaRL, Figure 4)",
    "mixed_precision": "Mixed precision (QuaRL, Table 5 and Figure 5)",
}
QUARL = Paper(
    "quarl", "QuaRL", f"{__package__}.quarl", headings=QUARL_HEADINGS, provides=("tables", "navigation", "statements")
)
LQCC = Paper(
    "lqcc",
    "Learning Quantized Continuous Controllers for Integer Hardware (Kresse and Lampert 2025)",
    f"{__package__}.lqcc",
    headings={"panels": "Figures of LQCC"},
    provides=("tables", "selection", "architectures", "statements"),
)
ACTORQ = Paper("actorq", "QuaRL, ActorQ", f"{__package__}.actorq", records=True, provides=("statements",))
REPAIR = Paper("repair", "ours, on repair", f"{__package__}.repair", provides=("statements",))
PAPERS = Registry(
    "paper",
    "quarl_bench.papers",
    Paper,
    {paper.name: f"{__name__}:{paper.name.upper()}" for paper in (QUARL, LQCC, ACTORQ, REPAIR)},
)


def list_providers(what: str) -> tuple[Paper, ...]:
    """The papers that provide `what`, ours first; SpecError where none does."""
    found = tuple(paper for paper in PAPERS.values() if what in paper.provides)
    if not found:
        raise SpecError(f"no paper provides {what}; its `provides` is to name it")
    return found


def find_heading(kind: str) -> str:
    """The heading under which the page draws `kind`: of the paper whose figures these are."""
    return next(paper.headings[kind] for paper in PAPERS.values() if kind in paper.headings)


def read_catalog(extra: tuple[str, ...] = (), *, elsewhere: bool = False) -> tuple[Claim, ...]:
    """All claims of the papers, and of the tuples that `extra` names as `module:CLAIMS`; SpecError for an id twice.

    What the papers know not to hold is about the committed policies; with policies from `elsewhere`, about none but the
    zoo's and committed records.
    """
    claims: list[Claim] = []
    for paper in PAPERS.values():
        stays = not elsewhere or paper.records
        claims += [c if stays or c.origin == ZOO else replace(c, known={}) for c in paper.read_claims()]
    for name in extra:
        claims += import_claims(name)
    seen: dict[str, Claim] = {}
    for claim in claims:
        if seen.setdefault(claim.id, claim) is not claim:
            raise SpecError(
                f"claim {claim.id!r} is defined twice ({seen[claim.id].paper} and {claim.paper}); rename one"
            )
    return tuple(claims)


def import_claims(name: str) -> tuple[Claim, ...]:
    """The claims that `module:CLAIMS` names; SpecError for what is not a tuple or list of them."""
    if name.endswith(".toml"):
        raise SpecError(f"claims {name!r}: claims are Python values now, named as module:CLAIMS; {HOW_TO}")
    if SEPARATOR not in name:
        raise SpecError(f"claims {name!r}: name them as module:CLAIMS; {HOW_TO}")
    found = import_attribute(name)
    if not isinstance(found, tuple | list) or not all(isinstance(claim, Claim) for claim in found):
        raise SpecError(f"claims {name!r}: no tuple of Claim; {HOW_TO}")
    return tuple(found)
