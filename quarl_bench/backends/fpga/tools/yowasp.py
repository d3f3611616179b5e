"""Open FPGA tools, which Python packages bring, and the files of a design that they read."""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from quarl_bench.errors import DeploymentError
from quarl_bench.system.extras import require_version

TIMEOUT = 3600.0  # seconds
READ = "**/*.v", "*.mem"  # what decides what they make of a design


@dataclass(frozen=True)
class Tool:
    """A program that a YoWASP package brings as WebAssembly, such as yosys or nextpnr."""

    package: str
    call: str  # the Python function that is the program

    @property
    def name(self) -> str:
        """The package's name with its installed version; MissingExtra when it is not installed."""
        return f"{self.package} {require_version(self.package, 'fpga', f'an FPGA tool ({self.package})')}"

    def require(self) -> None:
        """Check that the package is installed, before work is spent; MissingExtra when it is not."""
        _ = self.name

    def run(self, arguments: list[str], folder: Path) -> None:
        """In `folder`; DeploymentError with the tool's last word when it fails."""
        module = self.package.replace("-", "_")
        code = f"import sys, {module}; sys.exit({module}.{self.call}(sys.argv[1:]))"
        command = [sys.executable, "-c", code, *arguments]
        try:
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=TIMEOUT, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise DeploymentError(f"fpga: {self.package} ended ({error}); use a smaller folding") from error
        if done.returncode:
            lines = [line.strip() for line in (done.stderr or done.stdout).splitlines() if line.strip()]
            reason = next((line for line in lines if "ERROR" in line), lines[-1] if lines else "no message")
            raise DeploymentError(f"fpga: {self.package} refuses the design ({reason}); generate the design again")


def list_sources(folder: Path, top: str) -> str:
    """The Verilog of a design, as a tool's script names it."""
    return " ".join([f"{top}.v", *(f"rtl/{source.name}" for source in sorted((folder / "rtl").glob("*.v")))])
