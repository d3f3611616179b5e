"""The machine that this runs on, and the commit of the code: what a stored number may depend on."""

import os
import platform
import subprocess
from pathlib import Path
from typing import Any

from quarl_bench.system.extras import read_version
from quarl_bench.system.processor import list_fast_instructions, read_processor

CHECKOUT = Path(__file__).parents[2]  # that the package lies in, if it is not installed elsewhere


def describe_machine() -> dict[str, Any]:
    """What numbers may depend on, without anything that identifies a person."""
    return {
        "system": platform.system(),
        "architecture": platform.machine(),
        "processor": read_processor("model name") or platform.processor(),
        "instructions": list_fast_instructions(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
    }


def read_commit(root: Path, aside: str = "") -> str:
    """The checkout's commit, with `+` when it has changes elsewhere than in `aside`; empty outside a checkout."""
    places = ("--", ".", f":(exclude){aside}") if aside else ()
    try:
        commit = _git(root, "rev-parse", "HEAD")
        return commit + ("+" if _git(root, "status", "--porcelain", "--untracked-files=no", *places) else "")
    except (OSError, subprocess.SubprocessError):
        return ""


def describe_versions(*libraries: str) -> dict[str, str]:
    """The versions of Python and of those of `libraries` that are installed."""
    found = {name: read_version(name) for name in libraries}
    return {name: version for name, version in found.items() if version} | {"python": platform.python_version()}


def read_own_commit(aside: str = "") -> str:
    """The commit of the checkout that the package lies in, as `read_commit`; empty where it is installed elsewhere."""
    return read_commit(CHECKOUT, aside) if (CHECKOUT / "pyproject.toml").exists() else ""  # site-packages has no commit


def describe_run(seconds: float) -> dict[str, Any]:
    """A training's wall time over all its resumes, the code's commit and the processor, as a manifest states them."""
    return {"seconds": round(seconds), "commit": read_own_commit(), "processor": describe_machine()["processor"]}


def _git(root: Path, *arguments: str) -> str:
    command = ["git", "-C", str(root), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()
