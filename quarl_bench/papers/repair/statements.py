"""What repairs are judged by, in three sentences of our own."""

from quarl_bench.views.statement import Statement

LOST = "of the return lost on CartPole, Acrobot and MountainCar"
STATEMENTS = (
    Statement(
        "Plain 8 bits for weights and activations cost DQN more than 5%",
        "",
        "exception-plain",
        item="dqn-exception-int8",
        measure=LOST,
    ),
    Statement(
        "Repaired by `quarl repair`, the same 8 bits cost it at most 5%",
        "",
        "exception-repaired",
        item="dqn-noexception-int8repaired",
        measure=LOST,
    ),
    Statement(
        "At 4 bits repair after training loses less than training with the quantizer",
        "",
        "repaired-beats-trained",
        item="all-repairbeats-int4repaired",
        measure="of the fp32 return more kept, on a typical one of 11 control tasks",
    ),
)
