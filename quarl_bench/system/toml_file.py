"""TOML files that people write and pass around: read in bounded time, or refused in one line."""

import tomllib
from pathlib import Path
from typing import Any

from quarl_bench.errors import SpecError

LIMIT = 2**18  # bytes
DOTS = 200  # in one line: the reader's time grows with the square of a key's parts


def read_toml(path: Path, where: str, remedy: str) -> dict[str, Any]:
    """The tables of a TOML file; SpecError, from `where` to `remedy`, for what is none, or would not end."""
    if path.exists() and not path.is_file():
        raise SpecError(f"{where}: not a regular file; {remedy}")
    try:
        size = path.stat().st_size
        if size > LIMIT:
            raise SpecError(f"{where}: {size} bytes, more than the {LIMIT} of any such file; {remedy}")
        text = path.read_text()
        if any(line.count(".") > DOTS for line in text.splitlines()):
            raise SpecError(f"{where}: a line with more than {DOTS} points; {remedy}")
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SpecError(f"{where}: not TOML: {error}; {remedy}") from error
    except RecursionError as error:
        raise SpecError(f"{where}: brackets within brackets, deeper than any such file; {remedy}") from error
    except OSError as error:
        raise SpecError(f"{where}: {error.strerror or error}; {remedy}") from error
    except UnicodeDecodeError as error:
        raise SpecError(f"{where}: no text ({error.reason}); {remedy}") from error
