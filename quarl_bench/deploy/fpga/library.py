"""Where hw/fpga is: the RTL library, the testbenches and the vendors' scripts."""

import sysconfig
from pathlib import Path

from quarl_bench.errors import DeploymentError


def find_hardware() -> Path:
    """hw/fpga of the checkout, or of the installation; DeploymentError when neither has it."""
    places = (Path(__file__).parents[3] / "hw" / "fpga", Path(sysconfig.get_path("data")) / "share/quarl_bench/hw/fpga")
    for place in places:
        if (place / "rtl").is_dir():
            return place
    raise DeploymentError(f"fpga: no hw/fpga in {places[0].parent} or {places[1].parent}; reinstall quarl_bench")
