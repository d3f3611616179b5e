"""Claims files -> claims, cases and claim items. Standard library only: the plugin reads them at collection.

A claims file is TOML: `[paper] title`, one `[[claim]]` per sentence, and tables of the paper's own values. A claim of
kind `case` is judged in each of its cells; one of kind `aggregate` is one sentence over all cells of an algorithm.
"""

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from quarl_bench.errors import SpecError
from quarl_bench.judging.rules import AGGREGATE, CASE, FAMILIES, RULES, AxisKind, Rule
from quarl_bench.quantization.scheme import Scheme
from quarl_bench.spec import ID_PART, Case
from quarl_bench.training.recipes import ALGORITHMS

DISTRIBUTED = ("d4pg",)  # algorithms that only ActorQ trains
ALL = "all"  # the scheme part of an item that is about all schemes of its claim
REQUIRED = {"id": str, "locus": str, "kind": str, "rule": str, "threshold": float, "sentence": str, "schemes": list}
OPTIONAL = {
    "cells": list,
    "boards": list,
    "against": str,
    "against_origin": str,
    "slug": str,
    "origin": str,
    "table": str,
    "known": dict,
    "pooled": bool,
}
# All our 8-bit schemes answer the paper's "int8".
PAPER_COLUMN = {"fp16": "fp16", "w8": "w8", "int8": "w8", "int8uncal": "w8", "fp32": "fp32"}


@dataclass(frozen=True)
class Claim:
    """One sentence of a paper. `known` maps ids that do not reproduce to the reason.

    `schemes` are what is judged, `against` is what they are compared with; the rule says what these names are.
    `slug` is the middle part of an item's id.
    """

    id: str
    paper: str
    locus: str
    kind: str
    rule: str
    threshold: float
    sentence: str
    schemes: tuple[str, ...]
    cells: tuple[tuple[str, str], ...]  # (algorithm, environment)
    boards: tuple[str, ...] = ("",)
    against: str = ""
    against_origin: str = ""  # "control": the other algorithm's policies of the controlled comparison
    slug: str = ""
    origin: str = ""  # of the cells
    pooled: bool = False  # one item over all algorithms instead of one for each
    known: dict[str, str] = field(default_factory=dict)
    values: dict[tuple[str, str], dict[str, float]] = field(default_factory=dict)  # the paper's, per cell and column


@dataclass(frozen=True)
class JudgedCase:
    """One cell of a claim: what a parametrized test measures and judges."""

    claim: Claim
    case: Case

    @property
    def id(self) -> str:
        """The pytest id."""
        return self.case.id

    @property
    def known(self) -> str:
        """Why this case is expected not to reproduce; empty when it is not."""
        return self.claim.known.get(self.id, "")

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
    """One sentence over many cells: `<algo>-<the claim's slug>-<scheme>[-<board>]`."""

    claim: Claim
    algo: str
    scheme: str
    cases: tuple[Case, ...]

    @property
    def id(self) -> str:
        """The pytest id."""
        name = f"{self.algo}-{self.claim.slug}-{self.scheme}"
        return f"{name}-{self.board}" if self.board else name

    @property
    def board(self) -> str:
        """Where its cells are measured, in the rules about boards."""
        return self.cases[0].board if self.cases else ""

    @property
    def against(self) -> str:
        """The scheme it is compared with; empty where that is none."""
        if self.claim.against in FAMILIES:
            return f"{self.claim.against}{Scheme.parse(self.scheme).bit_width}"
        return self.claim.against if RULES[self.claim.rule].compares_schemes else ""

    @property
    def known(self) -> str:
        """Why this claim is expected not to reproduce; empty when it is not."""
        return self.claim.known.get(self.id, "")


def parse_claims(name: str, text: str) -> tuple[Claim, ...]:
    """The claims of one file called `name`; SpecError with file, line and key when it is ill-formed."""
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SpecError(f"claims file {name}: not TOML: {error}") from error
    entries = data.get("claim", [])
    if not isinstance(entries, list) or not isinstance(data.get("paper", {}), dict):
        raise SpecError(f"claims file {name}: key 'claim' must be an array of tables and 'paper' a table")
    paper = str(data.get("paper", {}).get("title", name))
    return tuple(_Entry(name, text, index, entry, data).claim(paper) for index, entry in enumerate(entries))


def expand_cases(claim: Claim) -> Iterator[JudgedCase]:
    """Every cell, scheme and board of a claim of kind `case`, in the file's order."""
    for algo, environment in claim.cells:
        for scheme in claim.schemes:
            for board in claim.boards:
                yield JudgedCase(claim, Case(algo, environment, scheme, claim.origin, board))


def expand_claims(claim: Claim) -> Iterator[JudgedClaim]:
    """One item per scheme and board, and per algorithm unless it is pooled, of a claim of kind `aggregate`.

    A count, and an order of schemes, is one item over all cells and schemes; a comparison of two cells is pooled.
    """
    if RULES[claim.rule].whole:
        cases = tuple(Case(a, environment, s, claim.origin) for a, environment in claim.cells for s in claim.schemes)
        yield JudgedClaim(claim, ALL, ALL, cases)
        return
    pooled = claim.pooled or RULES[claim.rule].pair
    for algo in (ALL,) if pooled else dict.fromkeys(algo for algo, _ in claim.cells):
        for scheme in claim.schemes:
            cells = [cell for cell in claim.cells if algo in (cell[0], ALL)]
            for board in claim.boards:
                cases = tuple(Case(a, environment, scheme, claim.origin, board) for a, environment in cells)
                yield JudgedClaim(claim, algo, scheme, cases)


@dataclass(frozen=True)
class _Entry:
    """One `[[claim]]` table being read, with what an error message needs to point at it."""

    name: str
    text: str
    index: int
    entry: dict[str, Any]
    data: dict[str, Any]

    def claim(self, paper: str) -> Claim:
        self._check_keys()
        entry = self.entry
        rule = RULES.get(entry["rule"])
        if rule is None or rule.kind != entry["kind"]:
            known = {kind: [name for name, rule in RULES.items() if rule.kind == kind] for kind in (CASE, AGGREGATE)}
            raise self._error("rule", f"kind and rule must be one of {known}")
        if rule.share and not 0 <= entry["threshold"] < 1:
            raise self._error("threshold", "must be at least 0 and below 1")
        if rule.ratio and entry["threshold"] <= 0:
            raise self._error("threshold", "must be a ratio above 0; 1 is equality")
        self._check_names(rule)
        cells = tuple(self._cells())
        if rule.pair and len(set(cells)) != 2:
            raise self._error("cells", f"{entry['rule']} compares two cells, the first with the second; name two")
        return Claim(
            id=entry["id"],
            paper=paper,
            locus=entry["locus"],
            kind=entry["kind"],
            rule=entry["rule"],
            threshold=entry["threshold"],
            sentence=entry["sentence"],
            schemes=tuple(entry["schemes"]),
            cells=cells,
            boards=tuple(entry.get("boards", [""])),
            against=entry.get("against", ""),
            against_origin=entry.get("against_origin", ""),
            slug=self._slug(),
            origin=self._origin(),
            pooled=entry.get("pooled", False),
            known=entry.get("known", {}),
            values=self._values(),
        )

    def _check_keys(self) -> None:
        for key, kind in REQUIRED.items():
            if key not in self.entry:
                raise self._error(key, "is missing")
            if not isinstance(self.entry[key], kind):
                raise self._error(key, f"must be of type {kind.__name__}")
        for key, value in self.entry.items():
            expected = REQUIRED.get(key) or OPTIONAL.get(key)
            if expected is None:
                raise self._error(key, f"is unknown; known are {', '.join((*REQUIRED, *OPTIONAL))}")
            if not isinstance(value, expected):
                raise self._error(key, f"must be of type {expected.__name__}")

    def _check_names(self, rule: Rule) -> None:
        """`schemes` and `against` are what the rule says."""
        against = self.entry.get("against")
        if (against is None) != (rule.against is None):
            needs = "needs" if against is None else "has no use for"
            raise self._error("rule", f"{self.entry['rule']} {needs} the key 'against'")
        for name in self.entry["schemes"]:
            self._check_name("schemes", rule.schemes, name)
        if rule.against is not None and not (rule.compares_schemes and against in FAMILIES):
            self._check_name("against", rule.against, against)

    def _check_name(self, key: str, meaning: AxisKind, name: object) -> None:
        try:
            meaning.check(name)
        except (SpecError, TypeError, ValueError) as error:
            raise self._error(key, str(error)) from error

    def _slug(self) -> str:
        slug: str = self.entry.get("slug", self.entry["id"].split("-")[0])
        if self.entry["kind"] == AGGREGATE and not ID_PART.fullmatch(slug):
            raise self._error("slug", f"{slug!r} must be one or more of [a-z0-9]")
        return slug

    def _origin(self) -> str:
        origin: str = self.entry.get("origin", "")
        if origin and not ID_PART.fullmatch(origin):
            raise self._error("origin", f"{origin!r} must be one or more of [a-z0-9]")
        return origin

    def _cells(self) -> Iterator[tuple[str, str]]:
        for cell in self.entry.get("cells", []):
            if not isinstance(cell, dict) or set(cell) != {"algo", "environments"}:
                raise self._error("cells", "each cell must have the keys algo and environments")
            known = (*ALGORITHMS, *DISTRIBUTED)
            if cell["algo"] not in known:
                raise self._error("cells", f"unknown algorithm {cell['algo']!r}; known are {', '.join(known)}")
            for environment in cell["environments"]:
                try:
                    Case(cell["algo"], environment, "fp32")
                except (SpecError, TypeError) as error:
                    raise self._error("cells", str(error)) from error
                yield cell["algo"], environment

    def _values(self) -> dict[tuple[str, str], dict[str, float]]:
        table = self.data.get(self.entry.get("table") or self.entry["id"].split("-")[0], {})
        if not isinstance(table, dict) or not all(isinstance(row, dict) for row in table.values()):
            raise self._error("table", "must name a table of algorithms and environments")
        return {(algo, environment): row for algo, rows in table.items() for environment, row in rows.items()}

    def _error(self, key: str, what: str) -> SpecError:
        return SpecError(f"claims file {self.name}, line {self._line(key)}, key {key!r}: {what}")

    def _line(self, key: str) -> int:
        """Line of `key` in this entry, or of the entry's header when the key is not there."""
        lines = self.text.splitlines()
        headers = [number for number, line in enumerate(lines, 1) if re.match(r"\s*\[\[\s*claim\s*\]\]", line)]
        if self.index >= len(headers):
            return 1
        start = headers[self.index]
        for number, line in enumerate(lines[start:], start + 1):
            if line.lstrip().startswith("["):
                break
            if re.match(rf"\s*\"?{re.escape(key)}\"?\s*[=.]", line):
                return number
        return start
