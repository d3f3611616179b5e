"""Errors between processes: what a worker raised has to reach the one who asked."""

import pickle
import sys

import pytest

from quarl_bench import errors
from quarl_bench.backends.litert import runtime

ARGUMENTS = {"MissingExtra": ("litert", "the runtime"), "MissingBoard": ("pi4", "not in the file")}


def list_errors(base=errors.QuarlError):
    return [base, *(error for own in base.__subclasses__() for error in list_errors(own))]


@pytest.mark.parametrize("kind", [error for error in list_errors() if error.__module__ == errors.__name__])
def test_an_error_survives_the_way_between_processes(kind):
    error = kind(*ARGUMENTS.get(kind.__name__, ("what is wrong",)))
    other = pickle.loads(pickle.dumps(error))
    assert (type(other), str(other), vars(other)) == (kind, str(error), vars(error))


def test_an_absent_runtime_is_a_missing_extra(monkeypatch):
    """Which skips, where a broken one fails."""
    monkeypatch.setitem(sys.modules, "ai_edge_litert", None)
    with pytest.raises(errors.MissingExtra, match=r"pip install 'quarl_bench\[litert\]'"):
        runtime.load_schema()
