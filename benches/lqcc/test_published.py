"""LQCC, section 3.1 and Table 1, on the authors' own returns: 2,400 quantized and 50 fp32 policies, SAC.

Their files are not part of this package: $QUARL_LQCC_RUNS names their folder, by default `shared/data/lqcc` beside the
checkout. Table 6 is judged as printed: the files hold the normalized half of it only.
"""

import pytest


@pytest.mark.claim(
    "lqcc-bits",
    "lqcc-core",
    "lqcc-bottleneck",
    "lqcc-output-least",
    "lqcc-output",
    "lqcc-two-bit-output",
    "lqcc-two-bit-core",
    "lqcc-halfcheetah-bits",
    "lqcc-halfcheetah-width",
    "lqcc-input-bits",
)
def test_bits_and_widths(claim, cells, verdict):
    verdict.check_cells(cells)


@pytest.mark.claim("lqcc-table1", "lqcc-sensitivity", "lqcc-parity")
def test_selection(claim, cells, verdict):
    verdict.check_cells(cells)


@pytest.mark.claim("lqcc-normalization")
def test_normalization_as_printed(claim, cells, verdict):
    verdict.check_cells(cells)
