"""The row of one policy under one scheme, as `assert_quantizable` judges it."""

import importlib.metadata
import re

from quarl_bench.checking.answer import SchemeResult
from quarl_bench.checking.subject import Subject
from quarl_bench.checking.text import name_share
from quarl_bench.judging.retention import retention_p_values
from quarl_bench.report.rows import build_row, show_pair
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
    p_values = retention_p_values(line.reference, line.measured, margin=margin, cap=environment.cap, floor=line.floor)
    about = {
        "id": name_check(name, subject, line),
        "claim": CLAIM,
        "rule": "retention",
        "sentence": f"{line.scheme.name} costs {name} at most {name_share(margin, line.floor)} on {environment.id}",
        "locus": "this project",
        "algo": str(subject.stored.metadata.get("algo") or ""),
        "env": environment.slug,
        "scheme": line.scheme.name,
        "origin": name,
        "board": "",
    }
    return build_row(
        about,
        line.verdict,
        kind="case",
        environment_id=environment.id,
        rounding=str(line.scheme.rounding),
        versions={library: importlib.metadata.version(library) for library in LIBRARIES},
        floor=line.floor,
        p_values=list(p_values),
        **show_pair(line.reference, line.measured),
    )
