"""The papers by name: rooms above reach one here, and import none of its modules.

A paper is a room of `papers/`, or an entry point of others' in `quarl_bench.papers`. It brings claims, and may bring
`tables.py` (`view_tables`) and the headings of the page's galleries. Standard library only: the plugin reads the
claims at collection.
"""

import importlib
import importlib.resources
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType

from quarl_bench.errors import SpecError
from quarl_bench.judging.catalog import Claim, parse_claims
from quarl_bench.spec import ZOO
from quarl_bench.system.registry import Registry


@dataclass(frozen=True)
class Paper:
    """One paper. `headings` are of the galleries that redraw its figures, by what is drawn."""

    name: str
    package: str  # its room: its claims files and its modules
    claims: tuple[str | Claim, ...] = ("claims.toml",)  # files, or the claims themselves
    headings: Mapping[str, str] = field(default_factory=dict)
    tables: bool = False  # whether it has `view_tables`
    records: bool = False  # whether its claims are about committed records, not about policies

    def open(self, module: str) -> ModuleType:
        """A module of the paper's own, by name; what the paper does alone is asked of it."""
        return importlib.import_module(f"{self.package}.{module}")

    def read_claims(self) -> tuple[Claim, ...]:
        """Its claims, in their order."""
        return tuple(claim for each in self.claims for claim in self._read(each))

    def _read(self, claims: str | Claim) -> tuple[Claim, ...]:
        if isinstance(claims, Claim):
            return (claims,)
        text = (importlib.resources.files(self.package) / claims).read_text(encoding="utf-8")
        return parse_claims(f"{self.name}/{claims}", text)


QUARL_HEADINGS = {
    "bits": "Return against bits (QuaRL, Figure 1)",
    "exploration": "Exploration (QuaRL, ICLR text, Figure 1)",
    "weights": "Weights (QuaRL, Figures 2 and 3)",
    "memory": "Memory over time (QuaRL, Figure 4)",
    "mixed_precision": "Mixed precision (QuaRL, Table 5 and Figure 5)",
}
QUARL = Paper(
    "quarl", f"{__package__}.quarl", ("claims.toml", "mixed_precision.toml"), headings=QUARL_HEADINGS, tables=True
)
LQCC = Paper("lqcc", f"{__package__}.lqcc", headings={"panels": "Figures of LQCC"}, tables=True)
ACTORQ = Paper("actorq", f"{__package__}.actorq", records=True)
PAPERS = Registry(
    "paper",
    "quarl_bench.papers",
    Paper,
    {paper.name: f"{__name__}:{paper.name.upper()}" for paper in (QUARL, LQCC, ACTORQ)},
)


def find_paper(name: str) -> Paper:
    """The paper called `name`; SpecError with the known ones otherwise."""
    return PAPERS.find(name)


def find_heading(kind: str) -> str:
    """The heading under which the page draws `kind`: of the paper whose figures these are."""
    return next(paper.headings[kind] for paper in PAPERS.values() if kind in paper.headings)


def read_catalog(extra: tuple[Path, ...] = (), *, elsewhere: bool = False) -> tuple[Claim, ...]:
    """All claims of the papers and of the files `extra`; SpecError for an ill-formed file or an id given twice.

    What the papers' files know not to hold is about the committed policies, and, with policies from `elsewhere`, about
    none but the zoo's and committed records.
    """
    claims: list[Claim] = []
    for paper in PAPERS.values():
        stays = not elsewhere or paper.records
        claims += [c if stays or c.origin == ZOO else replace(c, known={}) for c in paper.read_claims()]
    for path in extra:
        try:
            text = path.read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise SpecError(f"claims file {path}: {error}; pass a readable TOML file") from error
        claims += parse_claims(str(path), text)
    seen: dict[str, Claim] = {}
    for claim in claims:
        if seen.setdefault(claim.id, claim) is not claim:
            raise SpecError(
                f"claim {claim.id!r} is defined twice ({seen[claim.id].paper} and {claim.paper}); rename one"
            )
    return tuple(claims)
