"""Programs that an operating system installs: found, asked for their version, or refused in one line."""

import re
import shutil
import subprocess
from dataclasses import dataclass
from functools import cache

from quarl_bench.errors import DeploymentError, QuarlError, first_line

SECONDS = 30.0  # for a program to say its version


@dataclass(frozen=True)
class Program:
    """A program on the path, the Debian package that brings it, and the oldest version that does."""

    name: str
    package: str
    oldest: str = ""

    def find(self, what: str, error: type[QuarlError] = DeploymentError) -> str:
        """The program's path; `error`, which begins with `what`, where it is missing, broken or too old."""
        remedy = f"apt-get install {self.package}"
        path = shutil.which(self.name)
        if path is None:
            raise error(f"{what}: {self.name} is not installed; {remedy}")
        found = _ask_version(path)
        version = re.search(r"\d+(?:\.\d+)+", found)
        wanted = f"{self.oldest} or newer" if self.oldest else "one that works"
        if version is None:
            raise error(f"{what}: {path} says no version ({found or 'no word'}), wanted is {wanted}; {remedy}")
        if self.oldest and _read(version[0]) < _read(self.oldest):
            raise error(f"{what}: {path} is version {version[0]}, wanted is {wanted}; {remedy}")
        return path

    def describe(self, what: str, error: type[QuarlError] = DeploymentError) -> str:
        """What the program says of its version; `error` as `find`."""
        return _ask_version(self.find(what, error))


def _read(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


@cache
def _ask_version(path: str) -> str:
    """The first line of what the program says of itself, or why it says nothing."""
    command = [path, "--version"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return first_line(error)
    said = done.stdout.strip() or done.stderr.strip()
    return f"exit code {done.returncode}" if done.returncode else said.partition("\n")[0]
