"""Where hw/ is: the RTL library, the testbenches, the vendors' scripts, and the microcontroller's start-up code."""

import importlib.resources
from pathlib import Path

from quarl_bench.errors import DeploymentError


def find_hardware(target: str = "fpga") -> Path:
    """hw/<target>, of the checkout or of the installation; DeploymentError when the package came without it."""
    folder = Path(str(importlib.resources.files("quarl_bench"))) / "hw" / target
    if not folder.is_dir():
        raise DeploymentError(f"{target}: {folder} is missing; install quarl_bench again")
    return folder
