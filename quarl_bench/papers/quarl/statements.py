"""What QuaRL is read for, in a sentence each."""

from quarl_bench.views.statement import Statement

STATEMENTS = (
    Statement(
        "Weights in 8 bits after training cost at most 5% of the return",
        "2 to 5% without DQN, section 4",
        "table2-cell",
        scheme="w8",
    ),
    Statement(
        "DQN is the exception: 8 bits cost its Breakout policy most of the return",
        "36% kept, Table 2",
        "table2-cell",
        item="dqn-breakout-w8",
        measure="kept",
    ),
    Statement(
        "Quantization-aware training costs at most 5% of the return down to 6 bits",
        "5 or 6 bits, ICLR Figure 2",
        "figure2-holds",
        item="all-qatholds-qat6",
        measure="of the cells hold",
    ),
    Statement(
        "An int8 policy runs 18 times as fast as in fp32",
        "18.85x on a Pi 3b+, Table 4",
        "table4-eighteenfold",
        item="ppo-quadx3-int8-local",
        measure="as fast",
        unit="times",
        beside="on x86 with LiteRT, not testable here on a Pi",
    ),
    Statement(
        "Mixed precision trains the largest policy 50% faster",
        "1.61x, Table 5",
        "table5-half-again",
        item="dqn-pongc-bf16",
        measure="as fast a step",
        unit="times",
        beside="on a CPU in bf16",
    ),
    Statement(
        "It does so on a GPU, too",
        "1.61x, Table 5",
        "table5-half-again",
        item="dqn-pongc-bf16-cuda",
        measure="as fast a step",
        unit="times",
        beside="in bf16, against TF32",
    ),
)
