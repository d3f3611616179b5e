"""LQCC's sentences on our own runs: bits, Table 1, convergence, normalization, half precision, and exact integers.

Where configurations were not trained, the verdict is partial and lists them.
"""

import pytest


@pytest.mark.claim(
    "lqcc-bits-own",
    "lqcc-core-own",
    "lqcc-bottleneck-own",
    "lqcc-output-least-own",
    "lqcc-output-own",
    "lqcc-two-bit-output-own",
    "lqcc-two-bit-core-own",
    "lqcc-halfcheetah-bits-own",
    "lqcc-halfcheetah-width-own",
    "lqcc-input-bits-own",
)
def test_bits_and_widths(claim, cells, verdict):
    verdict.check_cells(cells)


@pytest.mark.claim("lqcc-table1-own", "lqcc-parity-own")
def test_selection(claim, cells, verdict):
    verdict.check_cells(cells)


@pytest.mark.claim(
    "lqcc-ddpg-gains-own",
    "lqcc-ddpg-normalization-own",
    "lqcc-ddpg-raw-own",
    "lqcc-ddpg-two-bit-core-own",
    "lqcc-ddpg-output-least-own",
    "lqcc-ddpg-walker2d-own",
    "lqcc-sac-over-ddpg-own",
)
def test_ddpg(claim, cells, verdict):
    verdict.check_cells(cells)


@pytest.mark.claim(
    "lqcc-convergence-humanoid",
    "lqcc-convergence-walker2d",
    "lqcc-convergence-ant",
    "lqcc-convergence-halfcheetah",
    "lqcc-convergence-hopper",
)
def test_a_selected_net_converges_as_fp32_does(claim, cells, verdict):
    verdict.check_cells(cells)


@pytest.mark.claim("lqcc-half-precision", "lqcc-half-precision-end", "lqcc-normalization-own", "lqcc-integers")
def test_how_they_were_trained_and_deployed(claim, cells, verdict):
    verdict.check_cells(cells)
