"""Rows and documents as results files hold them, typed by hand once."""

from quarl_bench.report.documents import Document
from quarl_bench.views.rows import Row


def make_row(scheme, ratio, verdict, **changes):
    measured = {"mean": 200.0 * ratio, "policies": 3, "episodes": 100, "distinct_episodes": 99, "agreement": 0.875}
    return {
        "nodeid": f"test_x.py::test[{scheme}]",
        "kind": "case",
        "id": f"ppo-cartpole-{scheme}",
        "claim": "table2-cell",
        "rule": "retention",
        "sentence": "it keeps the return",
        "locus": "Table 2",
        "algo": "ppo",
        "env": "cartpole",
        "scheme": scheme,
        "origin": "",
        "board": "",
        "versions": {"torch": "2.13.0"},
        "measured": measured,
        "reference": measured | {"mean": 200.0, "agreement": None},
        "paper": {"reference": 500.0, "value": 488.0},
        "source": "measured",
        "known": "",
        "verdict": verdict,
        "estimate": ratio,
        "interval": [ratio - 0.04, ratio + 0.04],
        "threshold": 0.95,
        "needed": "",
        "caveats": ["barring any rare collapse"],
        "missing": [],
        "line": f"{verdict}: ...",
        "regression": "same",
    } | changes


def to_rows(rows):
    """The typed rows of what a file holds."""
    return [Row.from_dict(row) for row in rows]


CLAIM = {
    "nodeid": "test_x.py::test_mean",
    "kind": "claim",
    "id": "ppo-table2-w8",
    "claim": "table2-mean",
    "sentence": "it holds on average",
    "algo": "ppo",
    "scheme": "w8",
    "measured": {},
    "reference": {},
    "paper": None,
    "verdict": "partial",
    "estimate": None,
    "interval": None,
    "threshold": 0.05,
    "missing": ["ppo-pong-w8"],
}


ROWS = [
    make_row("w8", 0.99, "supported"),
    make_row("w2", 0.30, "refuted", known="two bits are too few", regression="moved"),
    make_row("w4", 0.96, "inconclusive", needed="about 5 policies"),
    CLAIM,
]


def make_document(rows=ROWS, **changes):
    data = {
        "schema_version": 1,
        "machine": {"processor": "a chip", "instructions": ["avx2", "fma"]},
        "commit": "abc123",
        "settings": {"profile": "nightly"},
        "rows": rows,
        "skipped": [{"nodeid": "test_x.py::test_y", "reason": "no baseline for y"}],
        "notes": ["training z"],
    }
    return Document("results.json", data | changes)


SWEEP = Document(
    "sweep.json",
    {
        "kind": "sweep",
        "policy": "mine",
        "environment": "CartPole-v1",
        "episodes": 20,
        "rows": [
            {"scheme": scheme, "family": family, "bits": bits, "return": value, "low": low, "high": value}
            for scheme, family, bits, value, low in [("fp32", "fp32", 32, 9.0, None), ("w2", "w", 2, 5.0, 4.0)]
        ],
    },
)


WEIGHTS = Document(
    "weights.json",
    {
        "kind": "weights",
        "policy": "mine",
        "scheme": "w4",
        "rows": [{"name": "layers.0.weight", "count": 3, "kl": None, "std": 0.5}],
        "histograms": [
            {"name": "layers.0.weight", "low": -1, "high": 1, "counts": [1, 0, 2], "levels": [-1, 0, 0.5]},
            {"name": "all", "low": 0, "high": 0, "counts": [0], "levels": []},
        ],
    },
)


CHECK = Document(
    "check.json",
    {
        "kind": "check", "policy": "mine", "environment": "CartPole-v1", "episodes": 60, "distinct_episodes": 59,
        "source": "measured", "margin": 0.05, "confidence": 0.95, "scheme": "int8", "fewest": "w8", "return": 200.0,
        "recommendation": "Ship w8.", "layer_bits": 4,
        "rows": [
            {"scheme": "w8", "family": "w", "bits": 8, "return": 199.0, "difference": -1.0,
             "difference_interval": [-3, 1], "ratio": 0.995, "ratio_low": 0.985, "ratio_high": 1.005,
             "agreement": 0.99, "verdict": "supported", "needed": "", "caveats": ["one policy"]},
            {"scheme": "int8", "family": "int", "bits": 8, "return": 150.0, "difference": -50.0,
             "difference_interval": None, "ratio": None, "ratio_low": None, "ratio_high": None,
             "agreement": 0.7, "verdict": "inconclusive", "needed": "about 300 distinct episodes",
             "caveats": ["one policy", "no gains"]},
        ],
        "layers": [{"name": "layers.0", "shape": [64, 4], "reach": 5.7, "error": 0.068, "error_per_channel": 0.028,
                    "agreement": 0.986}],
        "costs": [{"backend": "c", "scheme": "w8", "bytes": 12345, "median": 7.04, "p90": 9.1, "reason": "",
                   "counted": "machine code", "own": 684.4},
                  {"backend": "litert", "scheme": "w8", "bytes": 0, "median": 0.0, "p90": 0.0, "reason": "no kernel"}],
        "targets": [{"target": "cortex-m4", "scheme": "w8", "unit": "bytes of flash", "value": 8232.0,
                     "source": "emulated", "reason": ""},
                    {"target": "xc7a15t", "scheme": "w8", "unit": "", "value": 0.0, "source": "",
                     "reason": "too wide"}],
    },
)  # fmt: skip
