"""Whether two results files say the same: verdict, estimate, interval and measured values of every row.

`python -m tests.support.compare_rows before.json after.json` lists what differs, and exits 1 where anything does. It
is for changes that move code and are to move no number.
"""

import json
import sys
from pathlib import Path
from typing import Any

SAID = ("verdict", "estimate", "interval", "threshold", "measured", "reference", "paper", "known")
Rows = dict[tuple[str, str], dict[str, Any]]


def read_rows(path: Path) -> Rows:
    """Rows by claim and id, with what they say."""
    rows = json.loads(path.read_text(encoding="utf-8"))["rows"]
    return {(row["claim"], row["id"]): {key: row.get(key) for key in SAID} for row in rows}


def list_differences(before: Rows, after: Rows) -> list[str]:
    """One line per row that is only in one of the files, and per value that differs."""
    lines = [f"{claim} {id_}: only before" for claim, id_ in sorted(before.keys() - after.keys())]
    lines += [f"{claim} {id_}: only after" for claim, id_ in sorted(after.keys() - before.keys())]
    for name in sorted(before.keys() & after.keys()):
        old, new = before[name], after[name]
        lines += [f"{' '.join(name)}, {key}: {old[key]} -> {new[key]}" for key in SAID if old[key] != new[key]]
    return lines


def main() -> int:
    """Compare the two files that are named."""
    before, after = (read_rows(Path(argument)) for argument in sys.argv[1:3])
    differences = list_differences(before, after)
    print(*differences, sep="\n", end="\n" if differences else "")
    print(f"{len(before)} rows before, {len(after)} after, {len(differences)} differences")
    return int(bool(differences))


if __name__ == "__main__":
    sys.exit(main())
