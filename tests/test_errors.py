"""Errors between processes: what a worker raised has to reach the one who asked."""

import importlib.metadata
import pickle
import sys
from unittest.mock import Mock

import pytest

from quarl_bench import errors
from quarl_bench.backends.litert import runtime
from tests.support.places import ROOT

ARGUMENTS = {"MissingExtra": ("litert", "the runtime"), "MissingBoard": ("pi4", "not in the file")}


def list_errors(base=errors.QuarlError):
    return [base, *(error for own in base.__subclasses__() for error in list_errors(own))]


@pytest.mark.parametrize("kind", [error for error in list_errors() if error.__module__ == errors.__name__])
def test_an_error_survives_the_way_between_processes(kind):
    error = kind(*ARGUMENTS.get(kind.__name__, ("what is wrong",)))
    other = pickle.loads(pickle.dumps(error))
    assert (type(other), str(other), vars(other)) == (kind, str(error), vars(error))


def test_an_extra_is_named_as_pip_finds_it(monkeypatch):
    """By the name of what is installed, else by the folder of the checkout that is on the path."""
    assert errors.advise_extra("litert") in str(errors.MissingExtra("litert", "x"))
    monkeypatch.setattr(importlib.metadata, "version", lambda _: "0.1.0")
    assert errors.advise_extra("litert") == "pip install 'quarl_bench[litert]'"
    monkeypatch.setattr(importlib.metadata, "version", Mock(side_effect=importlib.metadata.PackageNotFoundError))
    assert errors.advise_extra("litert") == f"pip install '{ROOT}[litert]'"


def test_an_absent_runtime_is_a_missing_extra(monkeypatch):
    """Which skips, where a broken one fails."""
    monkeypatch.setitem(sys.modules, "ai_edge_litert", None)
    with pytest.raises(errors.MissingExtra, match=r"pip install 'quarl_bench\[litert\]'"):
        runtime.load_schema()
