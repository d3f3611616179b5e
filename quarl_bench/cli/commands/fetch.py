"""`quarl fetch`: what other people made and the claims play, from where it is published."""

import argparse
from typing import Any

from quarl_bench.cli.arguments import new_command, read_path
from quarl_bench.cli.printing import print_result
from quarl_bench.views.text import format_table


def add_command(commands: Any) -> None:
    """Add `quarl fetch`: the agents of rl-baselines3-zoo."""
    command = new_command(commands, "fetch", run,
        "quarl fetch zoo --output zoo"
    )  # fmt: skip
    command.add_argument("what", choices=("zoo",), help="zoo: the agents of rl-baselines3-zoo that claims play.")
    command.add_argument(
        "--output", type=read_path, required=True, help="folder to fill; agents that it has already are kept."
    )


def run(options: argparse.Namespace) -> int:
    """Fetch every agent that a claim plays, and say where the claims find them."""
    from quarl_bench.experiments.zoo_download import fetch_agents
    from quarl_bench.papers.registry import read_catalog
    from quarl_bench.spec import ZOO

    cells = [cell for claim in read_catalog() if claim.origin == ZOO for cell in claim.cells]
    found = {name: str(path) for name, path in fetch_agents(cells, options.output).items()}
    lines = [*format_table([("agent", "file"), *found.items()]), f"play them: pytest --quarl-zoo={options.output}"]
    print_result(options, {"agents": found}, "\n".join(lines))
    return 0
