"""`quarl weights`: what the weights of a policy look like, and what a bit width does to them."""

import argparse
from typing import Any

from quarl_bench.cli.arguments import WIDEST, add_task, new_command, read_path
from quarl_bench.cli.opening import open_policy, use_one_thread
from quarl_bench.cli.printing import format_csv, print_result
from quarl_bench.errors import SpecError
from quarl_bench.system.atomic import open_folder
from quarl_bench.system.counts import read_positive
from quarl_bench.system.extras import needing
from quarl_bench.views.text import format_table

BITS = 8  # no default of argparse: it would not notice `--bits 8 --scheme fp16`
COLUMNS = ("tensor", "weights", "min", "max", "range", "std", "p99.9 |w|", "rel. RMSE", "levels", "KL")


def add_command(commands: Any) -> None:
    """Add `quarl weights`: a policy, a scheme for its weights, and the folder of table and figure."""
    command = new_command(commands, "weights", run,
        "quarl weights baselines/policies/ppo-cartpole-seed0 --bits 4 --output weights")  # fmt: skip
    add_task(command)
    choice = command.add_mutually_exclusive_group()
    choice.add_argument("--bits", type=read_positive, help="the scheme w<bits>, 2 to 32. Default: 8.")
    choice.add_argument("--scheme", help="another scheme of weights, for example fp16 or w8sympc. Default: w<bits>.")
    command.add_argument(
        "--output", type=read_path, help="folder for weights.csv and weights.png. Default: not written."
    )


def run(options: argparse.Namespace) -> int:
    """Measure the weights of every layer and of all together, print the table, and write it with histograms."""
    from quarl_bench.quantization.scheme import Scheme
    from quarl_bench.quantization.weight_statistics import list_histograms, measure_weights
    from quarl_bench.system.atomic import write_file

    use_one_thread()
    scheme = Scheme.parse(options.scheme or f"w{_check(options.bits or BITS)}")
    if scheme.integer:
        raise SpecError(f"scheme {scheme.name!r}: weights are looked at under fp32, fp16 or w<bits>")
    stored = open_policy(options)
    folder = None if options.output is None else open_folder(options.output)
    rows = [
        {
            "name": found.name,
            "shape": "x".join(map(str, found.shape)),
            "count": found.spread.count,
            "min": found.spread.low,
            "max": found.spread.high,
            "range": found.spread.range,
            "std": found.spread.std,
            "p999": found.spread.p999,
            "relative_rmse": found.relative_rmse,
            "levels": found.levels,
            "kl": found.kl,
        }
        for found in measure_weights(stored.policy.net, scheme)
    ]
    histograms = [vars(histogram) for histogram in list_histograms(stored.policy.net, scheme)]
    about = {"kind": "weights", "scheme": scheme.name, "policy_sha256": stored.sha256, "policy": options.policy.name}
    result = about | {"rows": rows, "histograms": histograms}
    if folder is not None:
        with needing("report", "a figure"):
            from quarl_bench.report.page.kinds.weight_histograms import read_bins
            from quarl_bench.report.page.plots import draw_weights, render_png

        write_file(folder / "weights.csv", format_csv(rows))
        write_file(folder / "weights.png", render_png(draw_weights(read_bins(result))))
    lines = [f"{options.policy}: weights without biases, before and after {scheme.name}", *format_table(_table(rows))]
    print_result(options, result, "\n".join(lines))
    return 0


def _check(bits: int) -> int:
    if not 2 <= bits <= WIDEST:
        raise SpecError(f"--bits {bits}: it must be 2 to {WIDEST}")
    return bits


def _table(rows: list[dict[str, Any]]) -> list[tuple[str, ...]]:
    numbers = ("min", "max", "range", "std", "p999", "relative_rmse")
    return [COLUMNS] + [
        (
            row["name"],
            f"{row['count']:,}",
            *(f"{row[name]:.4g}" for name in numbers),
            str(row["levels"]),
            "none" if row["kl"] is None else f"{row['kl']:.3g}",
        )
        for row in rows
    ]
