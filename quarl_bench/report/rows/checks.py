"""The row of one policy under one scheme, as `assert_quantizable` judges it."""

import importlib.metadata
import re

from quarl_bench.checking.answer import SchemeResult
from quarl_bench.checking.subject import Subject
from quarl_bench.checking.text import name_share
from quarl_bench.judging.outcomes import MARGIN, QUANTIZABLE
from quarl_bench.judging.retention import retention_p_values
from quarl_bench.report.rows.builder import build_row, show_pair
from quarl_bench.views.rows import Row

LIBRARIES = ("torch", "numpy", "gymnasium")


def name_check(name: str, subject: Subject, line: SchemeResult, margin: float) -> str:
    """An id like that of a case: policy, environment, scheme; and what is asked, where that is not the usual."""
    slug = "".join(re.findall(r"[a-z0-9]+", name.lower()))
    parts = [slug, subject.environment.slug, line.scheme.name]
    parts += [] if margin == MARGIN else [f"margin{_write_number(100 * margin)}"]
    parts += [] if line.floor is None else [f"floor{_write_number(line.floor)}"]
    return "-".join(parts)


def _write_number(value: float) -> str:
    """In letters and digits, as ids are: 2p5 for 2.5, m21 for -21."""
    return f"{value:g}".replace(".", "p").replace("-", "m").replace("+", "")


def build_check_row(name: str, subject: Subject, line: SchemeResult, margin: float) -> Row:
    """The row of a policy called `name`, in built-in types: what was measured, against what, and the verdict."""
    environment = subject.environment
    p_values = retention_p_values(line.reference, line.measured, margin=margin, cap=environment.cap, floor=line.floor)
    about = {
        "id": name_check(name, subject, line, margin),
        "claim": QUANTIZABLE,
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
