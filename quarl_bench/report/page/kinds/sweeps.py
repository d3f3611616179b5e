"""What `quarl sweep --json` and `quarl check --json` say, as curves."""

from typing import Any

from quarl_bench.report.page.plots import Curve, Point

FAMILIES = {"w": "weights only", "int": "weights and activations", "fp16": "fp16", "i": "learned scales"}


def read_curves(sweep: dict[str, Any]) -> tuple[tuple[Curve, ...], float, float | None]:
    """Curves by family, and the fp32 return; none has to be kept. LookupError, TypeError, ValueError: ill-formed."""
    (reference,) = (float(row["return"]) for row in sweep["rows"] if row["scheme"] == "fp32")
    curves = []
    for family, label in FAMILIES.items():
        rows = [row for row in sweep["rows"] if row["family"] == family]
        if rows:
            curves.append(Curve(label, tuple(_read_point(row) for row in rows)))
    return tuple(curves), reference, None


def read_check_curves(check: dict[str, Any]) -> tuple[tuple[Curve, ...], float, float | None]:
    """The same of a check, whose intervals are of differences to fp32, with the return that its margin leaves."""
    reference = float(check["return"])
    curves = []
    for family, label in FAMILIES.items():
        points = []
        for row in (row for row in check["rows"] if row["family"] == family):
            low, high = row["difference_interval"] or (None, None)
            limits = (None if limit is None else reference + float(limit) for limit in (low, high))
            points.append(Point(int(row["bits"]), float(row["return"]), *limits))
        if points:
            curves.append(Curve(label, tuple(points)))
    kept = reference - float(check["margin"]) * abs(reference - float(check.get("floor") or 0.0))
    return tuple(curves), reference, kept


def _read_point(row: dict[str, Any]) -> Point:
    low, high = (None if row[name] is None else float(row[name]) for name in ("low", "high"))
    return Point(int(row["bits"]), float(row["return"]), low, high)
