"""What LQCC is read for, in a sentence."""

from quarl_bench.views.statement import Statement

STATEMENTS = (
    Statement(
        "A controller with 3-bit weights and inner activations returns what fp32 does on HalfCheetah",
        "within one SD of fp32, Table 1",
        "lqcc-selected-halfcheetah",
        item="sac-halfcheetahv4-i8c3o8-lqcc",
        measure="kept",
    ),
)
