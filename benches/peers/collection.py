"""What the plugin adds to `pytest --collect-only` on an empty file, in milliseconds.

With and without the plugin in turns, a process each: `python benches/peers/collection.py [--rounds N]`. Modules are
compiled once, as an installed package's are, whatever PYTHONDONTWRITEBYTECODE says here.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

EMPTY = 5  # pytest: no tests were collected


def main() -> None:
    """Time both in turns and print the difference of the medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20, help="Default: 20.")
    options = parser.parse_args()
    variants = {"without": ["-p", "no:quarl_bench.plugin"], "with": []}
    seconds: dict[str, list[float]] = {name: [] for name in variants}
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "test_empty.py").touch()
        base = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider"]
        compiled = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(Path(folder) / "compiled")}
        for _ in range(options.rounds + 1):
            for name, extra in variants.items():
                start = time.perf_counter()
                command, variables = [*base, *extra], os.environ | compiled
                done = subprocess.run(command, cwd=folder, env=variables, check=False, capture_output=True)
                if done.returncode != EMPTY:
                    sys.exit(done.stderr.decode())
                seconds[name].append(time.perf_counter() - start)
    medians = {name: 1000 * statistics.median(values[1:]) for name, values in seconds.items()}  # the first warms up
    print(f"without {medians['without']:.0f} ms, with {medians['with']:.0f} ms")
    # In pairs, because a shared machine drifts.
    pairs = zip(seconds["without"][1:], seconds["with"][1:], strict=True)
    print(f"the plugin adds {1000 * statistics.median(after - before for before, after in pairs):.1f} ms")


if __name__ == "__main__":
    main()
