"""The row of one policy under one scheme, as `assert_quantizable` judges it."""

import importlib.metadata
import re

from quarl_bench.checking.answer import SchemeResult
from quarl_bench.checking.subject import Subject
from quarl_bench.checking.text import name_share
from quarl_bench.judging.retention import retention_p_values
from quarl_bench.report.rows import state_verdict, summarise
from quarl_bench.views.rows import Row

CLAIM = "quantizable"
LIBRARIES = ("torch", "numpy", "gymnasium")


def name_check(name: str, subject: Subject, line: SchemeResult) -> str:
    """An id like that of a case: policy, environment, scheme."""
    slug = "".join(re.findall(r"[a-z0-9]+", name.lower()))
    return f"{slug}-{subject.environment.slug}-{line.scheme.name}"


def build_check_row(name: str, subject: Subject, line: SchemeResult, margin: float) -> Row:
    """The row of a policy called `name`, in built-in types: what was measured, against what, and the verdict."""
    environment = subject.environment
    weights = retention_p_values(line.reference, line.measured, margin=margin, cap=environment.cap, floor=line.floor)
    return {
        "kind": "case",
        "id": name_check(name, subject, line),
        "claim": CLAIM,
        "rule": "retention",
        "algo": str(subject.stored.metadata.get("algo") or ""),
        "env": environment.slug,
        "scheme": line.scheme.name,
        "origin": name,
        "board": "",
        "environment_id": environment.id,
        "rounding": str(line.scheme.rounding),
        "versions": {library: importlib.metadata.version(library) for library in LIBRARIES},
        "measured": summarise(line.measured),
        "reference": summarise(line.reference),
        "floor": line.floor,
        "paper": None,
        "p_values": list(weights),
        "source": str(line.measured.source),
        "sentence": f"{line.scheme.name} costs {name} at most {name_share(margin, line.floor)} on {environment.id}",
        "locus": "this project",
        "known": "",
        "regression": "none",
    } | state_verdict(line.verdict)
