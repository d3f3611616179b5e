"""Running an open FPGA tool on a design, once: results are kept under the hash of the design's files and the tool."""

import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock

from quarl_bench.errors import DeploymentError
from quarl_bench.system.atomic import write_file
from quarl_bench.system.extras import require_version

TIMEOUT = 3600.0  # seconds


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


def run_once(
    design: Path, cache: Path, kind: str, salt: str, compute: Callable[[Path], dict[str, Any]]
) -> dict[str, Any]:
    """What `compute` makes of a copy of the folder `design`; from `cache` when the files and `salt` are known there."""
    result = cache / kind / f"{_hash_files(design, salt)}.json"
    result.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{result}.lock"):
        if not result.exists():
            with tempfile.TemporaryDirectory() as scratch:
                work = Path(scratch) / "design"
                shutil.copytree(design, work)
                write_file(result, json.dumps(compute(work), indent=2) + "\n")
    found: dict[str, Any] = json.loads(result.read_text())
    return found


def list_sources(folder: Path, top: str) -> str:
    """The Verilog of a design, as a tool's script names it."""
    return " ".join([f"{top}.v", *(f"rtl/{source.name}" for source in sorted((folder / "rtl").glob("*.v")))])


def _hash_files(folder: Path, salt: str) -> str:
    content = hashlib.sha256(salt.encode())
    for file in sorted([*folder.glob("**/*.v"), *folder.glob("*.mem")]):
        content.update(f"{file.relative_to(folder)}\0".encode() + file.read_bytes())
    return content.hexdigest()[:32]
