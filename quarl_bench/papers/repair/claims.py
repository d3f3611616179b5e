"""Claims of our own: what bits cost where `quarl repair` has chosen their form, and what they cost without it.

`int8repaired` is the form that a repair chose for a policy, kept below baselines/repaired; a policy that needed none
plays its plain `int8`. Of fewer bits those policies count that have a form. The repair chose on validation seeds, so
the episodes that score it here chose nothing.
"""

from quarl_bench.judging.claim import Claim, over
from quarl_bench.judging.rules.cells import Keeps
from quarl_bench.judging.rules.returns import Gains, MeanError, MeanLoss

GAMES = "breakout spaceinvaders beamrider mspacman qbert seaquest cartpole pong"
TABLE_2 = (
    *over("a2c dqn ppo", GAMES),
    *over("ddpg", "walker2dbullet halfcheetahbullet bipedalwalker mountaincarcontinuous"),
)
DQN_CONTROL = over("dqn", "cartpole acrobot mountaincar")  # LunarLander's returns lie around 0: no share of them
CONTROL = (
    *DQN_CONTROL,
    *over("dqn", "lunarlander"),
    *over("a2c", "cartpole acrobot lunarlander"),
    *over("ppo", "cartpole acrobot lunarlander mountaincarcontinuous"),
    *over("ddpg", "mountaincarcontinuous pendulum"),
)
PLAIN, REPAIRED = "int8", "int8repaired"
REWRITTEN = "int8pceqcleacc"  # every rewrite at once, for agents whose integers are not ours to keep
FEW = ("int6repaired", "int4repaired", "int2repaired")
TRAINED = (
    *over("a2c ppo dqn", "cartpole acrobot lunarlander"),
    *over("ddpg", "mountaincarcontinuous pendulum halfcheetahbullet"),
)

CLAIMS = (
    Claim(
        "repaired-cell",
        where="ours: Table 2, repaired",
        says="8 bits for weights and activations, repaired where they were, cost this cell at most 5% of its return",
        judgement=Keeps(0.05),
        schemes=(REPAIRED,),
        cells=tuple(dict.fromkeys((*TABLE_2, *CONTROL))),
    ),
    Claim(
        "repaired-mean",
        where="ours: Table 2, last row, repaired",
        says="8 bits for weights and activations, repaired where they were, cost at most 5% on average over the table",
        judgement=MeanError(0.05),
        schemes=(REPAIRED,),
        cells=TABLE_2,
        slug="repairedmean",
    ),
    Claim(
        "exception-plain",
        where="ours: section 4, DQN",
        says="plain 8 bits for weights and activations cost DQN more than 5% on average over three control tasks",
        judgement=MeanLoss(0.05),
        schemes=(PLAIN,),
        cells=DQN_CONTROL,
        slug="exception",
    ),
    Claim(
        "exception-repaired",
        where="ours: section 4, DQN, repaired",
        says="repaired, they cost DQN at most 5% on average over the same tasks: it is an exception to plain rounding",
        judgement=MeanError(0.05),
        schemes=(REPAIRED,),
        cells=DQN_CONTROL,
        slug="noexception",
    ),
    Claim(
        "repaired-gains",
        where="ours: section 4, DQN, repaired",
        says="on a typical control task DQN loses less to repaired than to plain 8 bits",
        judgement=Gains(0.0, PLAIN),
        schemes=(REPAIRED,),
        cells=DQN_CONTROL,
        slug="repairgains",
    ),
    Claim(
        "rewritten-zoo",
        where="ours: Table 2, on rl-baselines3-zoo agents, rewritten",
        says="plain int8 breaks this agent; rewritten without a search, 8 bits cost at most 5% of its return",
        judgement=Keeps(0.05),
        schemes=(REWRITTEN,),
        cells=(*over("dqn", "cartpole lunarlander"), ("sac", "halfcheetahv4")),
        origin="zoo",
    ),
    Claim(
        "repaired-few",
        where="ours: Figure 2 (QAT), repaired",
        says="repaired to so few bits for weights and activations, this cell loses at most 5% of its return",
        judgement=Keeps(0.05),
        schemes=FEW,
        cells=TRAINED,
    ),
    Claim(
        "repaired-three-bits",
        where="ours: Table 1 (QAT), repaired",
        says="repaired to 3 bits for weights and activations, this cell loses at most 5% of its return",
        judgement=Keeps(0.05),
        schemes=("int3repaired",),
        cells=(*over("a2c ppo", "cartpole"), *over("ddpg", "halfcheetahbullet")),
    ),
    Claim(
        "repaired-beats-trained",
        where="ours: Figure 2 (QAT), against repair",
        says="repair behind the training loses less than training with the quantizer, to as many bits",
        judgement=Gains(0.0, "qat"),
        schemes=FEW,
        cells=TRAINED,
        slug="repairbeats",
        pooled=True,
    ),
)
