"""What the papers claim and a run has no row of: skipped, which says why, or never run."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from quarl_bench.judging.claim import Claim, expand
from quarl_bench.papers.registry import read_catalog
from quarl_bench.views.rows import Row

PARAMETER = re.compile(r"\[(.+)\]$")  # of a node id


@dataclass(frozen=True)
class Unjudged:
    """Cases or items of a claim without a row: how many were skipped, and how many were not even that."""

    claim: str
    sentence: str
    locus: str
    skipped: int
    absent: int


def list_unjudged(rows: Sequence[Row], skipped: Iterable[str]) -> tuple[Unjudged, ...]:
    """One entry per claim that lacks rows, given the node ids that were `skipped`.

    None at all where no row is about a claim of the papers: then the run was about something else.
    """
    catalog = read_catalog()
    judged = {(row.claim, row.id) for row in rows}
    if not {claim.id for claim in catalog} & {claim for claim, _ in judged}:
        return ()
    names = {found[1] for node in skipped if (found := PARAMETER.search(node))}
    entries = []
    for claim in catalog:
        missing = [name for name in _list_ids(claim) if (claim.id, name) not in judged]
        if missing:
            explained = sum(name in names for name in missing)
            entries.append(Unjudged(claim.id, claim.says, claim.where, explained, len(missing) - explained))
    return tuple(entries)


def _list_ids(claim: Claim) -> Iterator[str]:
    yield from (judged.id for judged in expand(claim))
