"""Builds FINN's dataflow of a policy, on a machine that has FINN (v0.10.1 in its container) and Vivado.

    quarl fpga POLICY --qonnx policy.onnx --estimate --vectors 0
    python build.py policy.onnx --output finn-build [--fps 1e4] [--part xc7a15tcpg236-1] [--estimates-only]

100 MHz, folded for a target rate of actions, synthesised out of context. Reports appear in OUTPUT/report; estimates
need no Vivado. They are comparable with quarl_bench.backends.fpga.explore.finn. Written for that version's interface;
no machine of this project has FINN, so it has not been run.
"""

import argparse
from pathlib import Path

from finn.builder import build_dataflow, build_dataflow_config
from finn.builder.build_dataflow_config import DataflowBuildConfig, DataflowOutputType

PERIOD = 10.0  # ns


def main() -> None:
    """Read the arguments and build."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--output", type=Path, default=Path("finn-build"))
    parser.add_argument("--fps", type=float, default=1e4, help="actions a second; LQCC swept powers of ten")
    parser.add_argument("--part", default="xc7a15tcpg236-1")
    parser.add_argument("--estimates-only", action="store_true")
    options = parser.parse_args()
    wanted = [DataflowOutputType.ESTIMATE_REPORTS]
    steps = build_dataflow_config.estimate_only_dataflow_steps
    if not options.estimates_only:
        wanted += [
            DataflowOutputType.STITCHED_IP,
            DataflowOutputType.RTLSIM_PERFORMANCE,
            DataflowOutputType.OOC_SYNTH,
        ]
        steps = build_dataflow_config.default_build_dataflow_steps
    build_dataflow.build_dataflow_cfg(
        str(options.model),
        DataflowBuildConfig(
            output_dir=str(options.output),
            synth_clk_period_ns=PERIOD,
            fpga_part=options.part,
            target_fps=int(options.fps),
            generate_outputs=wanted,
            steps=steps,
        ),
    )


if __name__ == "__main__":
    main()
