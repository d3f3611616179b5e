"""What ActorQ is read for, in a sentence."""

from quarl_bench.views.statement import Statement

STATEMENTS = (
    Statement(
        "Training with int8 actors reaches fp32's return in two thirds of the time",
        "1.5 to 2.5 times sooner, README",
        "actorq-time",
        item="dqn-actortime-int8",
        measure="of fp32's time, CartPole",
    ),
    Statement(
        "Where actors decide, a step with int8 ones takes two thirds of the time",
        "as above",
        "actorq-rate",
        item="d4pg-actorrate-int8",
        measure="of fp32's, two actors of 3 x 2048",
    ),
)
