"""QuaRL's claims on post-training quantization: Tables 2 and 3, Figures 2 and 3, and the same on tasks that are cheap.

The paper's "int8" rounds weights only, our `w8`; the same sentence is judged for `int8`, which is deployed.
"""

from quarl_bench.judging.claim import Claim, over
from quarl_bench.judging.rules.cells import Keeps
from quarl_bench.judging.rules.judgement import STATISTICS
from quarl_bench.judging.rules.returns import Equivalent, Gains, Harder, Loses, MeanError, MostCells, SomeCells, Tracks
from quarl_bench.judging.rules.training import Wider
from quarl_bench.judging.rules.widths import Fewest, SweetSpots

GAMES = "cartpole breakout spaceinvaders beamrider mspacman qbert seaquest pong"
COLUMNS = "breakout spaceinvaders beamrider mspacman qbert seaquest cartpole pong"  # as the table prints them
TABLE_2 = (
    *over("a2c dqn ppo", COLUMNS),
    *over("ddpg", "walker2dbullet halfcheetahbullet bipedalwalker mountaincarcontinuous"),
)
CLASSIC = (  # tasks that need no emulator; the table has only two of them
    *over("a2c dqn", "cartpole acrobot lunarlander"),
    *over("ppo", "cartpole acrobot lunarlander mountaincarcontinuous"),
    *over("ddpg", "mountaincarcontinuous pendulum"),
)
CONTROL = (*CLASSIC, *over("dqn", "mountaincar"))
DQN_TASKS = over(
    "dqn", "cartpole acrobot lunarlander mountaincar breakout spaceinvaders beamrider mspacman qbert seaquest pong"
)
SWEET = (  # cells whose episodes are cheap; CartPole's policies are at its ceiling, where nothing can be gained
    *over("dqn", "acrobot mountaincar"),
    *over("ppo", "mountaincarcontinuous"),
    *over("ddpg", "mountaincarcontinuous pendulum"),
)
WIDTHS = ("w2", "w3", "w4", "w6", "w8", "w10", "w12")  # the paper's code takes 2 to 32; from 12 on these cells lose 0%
PRECISIONS = ("fp16", "w8", "int8")

CLAIMS = (
    Claim(
        "table2-cell",
        where="Table 2",
        says="post-training quantization to 16 or 8 bits costs this cell at most 5% of its return",
        judgement=Keeps(0.05),
        schemes=PRECISIONS,
        cells=(
            *over("a2c dqn ppo", GAMES),
            *over("ddpg", "mountaincarcontinuous bipedalwalker halfcheetahbullet walker2dbullet"),
            *over("a2c", "acrobot lunarlander bipedalwalker halfcheetahbullet walker2dbullet"),
            *over("dqn", "acrobot lunarlander mountaincar"),
            *over("ppo", "acrobot lunarlander mountaincarcontinuous"),
            *over("ppo", "bipedalwalker halfcheetahbullet walker2dbullet"),
            *over("ddpg", "pendulum"),
        ),
    ),
    Claim(
        "table2-deployed",
        where="ours: Table 2, as deployed",
        says="the exported artefact, run by its runtime, costs this cell at most 5% of its return",
        judgement=Keeps(0.05),
        schemes=("fp32", "int8"),
        cells=(
            *over("a2c dqn", "cartpole acrobot"),
            *over("ppo", "cartpole lunarlander mountaincarcontinuous"),
            *over("ddpg", "mountaincarcontinuous pendulum"),
        ),
        boards=("local",),
    ),
    Claim(
        "zoo-cell",
        where="ours: Table 2, on rl-baselines3-zoo agents",
        says="post-training quantization to 16 or 8 bits costs this agent at most 5% of its return",
        judgement=Keeps(0.05),
        schemes=("fp16", "w8", "w8floor", "int8"),
        cells=(
            *over("a2c", "cartpole bipedalwalker halfcheetahbullet"),
            *over("dqn", "cartpole lunarlander"),
            *over("ppo", "cartpole halfcheetahbullet walker2dv4"),
            *over("ddpg", "mountaincarcontinuous"),
            *over("sac", "halfcheetahv4"),
        ),
        origin="zoo",
    ),
    Claim(
        "memory-cell",
        where="ours: Table 2, on a policy with an LSTM",
        says="post-training quantization to so many bits costs a policy with a memory at most 5% of its return",
        judgement=Keeps(0.05),
        schemes=("w8", "int8", "int6", "int4"),
        cells=over("recurrentppo", "cartpolenovel"),
    ),
    Claim(
        "table2-mean",
        where="Table 2, last row; section 4",
        says="the mean relative error over the table's tasks is at most 5%",
        judgement=MeanError(0.05),
        schemes=PRECISIONS,
        cells=TABLE_2,
    ),
    Claim(
        "table2-fp16-like-8bit",
        where="Table 2; section 4",
        says="16 and 8 bits differ by at most 5 points of mean relative error",
        judgement=Equivalent(0.05, "fp16"),
        schemes=("w8", "int8"),
        cells=TABLE_2,
    ),
    Claim(
        "table2-gains",
        where="Table 2, negative errors; section 4",
        says="in some cells the quantized policy returns more than fp32",
        judgement=SomeCells(0.0),
        schemes=PRECISIONS,
        cells=TABLE_2,
        slug="tablegains",
        pooled=True,
    ),
    Claim(
        "classic-mean",
        where="section 4, on classic control",
        says="the mean relative error over classic control tasks is at most 5%",
        judgement=MeanError(0.05),
        schemes=PRECISIONS,
        cells=CLASSIC,
    ),
    Claim(
        "classic-fp16-like-8bit",
        where="section 4, on classic control",
        says="16 and 8 bits differ by at most 5 points of mean relative error on classic control",
        judgement=Equivalent(0.05, "fp16"),
        schemes=("w8", "int8"),
        cells=CLASSIC,
    ),
    Claim(
        "classic-gains",
        where="section 4, on classic control",
        says="in some cells the quantized policy returns more than fp32, on classic control",
        judgement=SomeCells(0.0),
        schemes=PRECISIONS,
        cells=(
            *over("a2c dqn", "acrobot lunarlander"),
            *over("ppo", "acrobot lunarlander mountaincarcontinuous"),
            *over("ddpg", "pendulum"),
        ),
        slug="classicgains",
        pooled=True,
    ),
    Claim(
        "bits-suffice",
        where="abstract",
        says="this many bits cost at most 5% of the return in at least 80% of the cells",
        judgement=MostCells(0.05),
        schemes=("w8", "w7", "w6", "int8", "int7", "int6"),
        cells=CLASSIC,
        slug="bits",
        pooled=True,
    ),
    Claim(
        "sweet-spot",
        where="section 4, appendix: sweet spots",
        says="in some cells there is a width of 2 to 12 bits at which the quantized policy returns more than fp32",
        judgement=SweetSpots(0.0),
        schemes=WIDTHS,
        cells=SWEET,
        slug="sweetspot",
    ),
    Claim(
        "sweet-spot-fewest",
        where="ours: abstract, and the appendix's sweet spots, in every cell",
        says="from 8 bits on every width costs this cell at most 5% of its return",
        judgement=Fewest(8.0, margin=0.05),
        schemes=WIDTHS,
        cells=(*over("dqn", "cartpole"), *SWEET),
        slug="fewest",
    ),
    Claim(
        "activations-cost",
        where="Section 5, deployment",
        says="on a typical control task 8 bits for weights alone cost less return than for weights and activations",
        judgement=Gains(0.0, "int8"),
        schemes=("w8",),
        cells=CONTROL,
        slug="activationscost",
        pooled=True,
    ),
    Claim(
        "calibration-helps",
        where="Section 5, deployment",
        says="on a typical control task activation ranges from rollouts cost less return than ranges without them",
        judgement=Gains(0.0, "int8uncal"),
        schemes=("int8",),
        cells=CONTROL,
        slug="calibration",
        pooled=True,
    ),
    Claim(
        "table3-rescue",
        where="Table 3",
        says="on Breakout DQN loses more than 5% of what it scores at 16 bits when it goes on to 8",
        judgement=Loses(0.05, "fp16"),
        schemes=("w8",),
        cells=over("dqn", "breakout"),
        slug="rescue",
    ),
    Claim(
        "table3-dqn-over-ppo",
        where="Table 3",
        says="on Breakout DQN loses a larger share of its return to 8 bits than PPO",
        judgement=Harder(0.0),
        schemes=("w8", "int8"),
        cells=over("dqn ppo", "breakout"),
        slug="dqnoverppo",
    ),
    Claim(
        "table3-dqn-over-a2c",
        where="Table 3",
        says="on Breakout DQN loses a larger share of its return to 8 bits than A2C",
        judgement=Harder(0.0),
        schemes=("w8", "int8"),
        cells=over("dqn a2c", "breakout"),
        slug="dqnovera2c",
    ),
    Claim(
        "table3-ppo-over-a2c",
        where="Table 3",
        says="on Breakout PPO loses a larger share of its return to 8 bits than A2C",
        judgement=Harder(0.0),
        schemes=("w8", "int8"),
        cells=over("ppo a2c", "breakout"),
        slug="ppoovera2c",
    ),
    Claim(
        "figure2-breakout-over-beamrider",
        where="Figure 2",
        says="DQN loses a larger share of its return to 8 bits on Breakout than on Beam Rider",
        judgement=Harder(0.0),
        schemes=("w8",),
        cells=over("dqn", "breakout beamrider"),
        slug="breakoutoverbeamrider",
    ),
    Claim(
        "figure2-beamrider-over-pong",
        where="Figure 2",
        says="DQN loses a larger share of its return to 8 bits on Beam Rider than on Pong",
        judgement=Harder(0.0),
        schemes=("w8",),
        cells=over("dqn", "beamrider pong"),
        slug="beamrideroverpong",
    ),
    Claim(
        "figure2-tracks",
        where="Figure 2",
        says="the wider a DQN policy's weights are spread, the larger is the loss of its return to 8 bits",
        judgement=Tracks(0.05, "range"),
        schemes=("w8",),
        cells=DQN_TASKS,
        slug="tracks",
    ),
    Claim(
        "figure2-tracks-error",
        where="ours: Figure 2, by the error instead of the range",
        says="the larger the relative 8-bit error of a DQN policy's weights, the larger is that of its return",
        judgement=Tracks(0.05, "rmse8"),
        schemes=("w8",),
        cells=DQN_TASKS,
        slug="trackserror",
    ),
    Claim(
        "spread-over-ppo",
        where="Figure 3, Table 3",
        says="DQN's weights are spread wider than PPO's",
        judgement=Wider(1.0, "ppo"),
        schemes=STATISTICS,
        cells=DQN_TASKS,
        slug="overppo",
    ),
    Claim(
        "spread-over-a2c",
        where="Figure 3, Table 3",
        says="DQN's weights are spread wider than A2C's",
        judgement=Wider(1.0, "a2c"),
        schemes=STATISTICS,
        cells=DQN_TASKS,
        slug="overa2c",
    ),
    Claim(
        "spread-over-ppo-control",
        where="ours: Figure 3, Table 3, controlled",
        says="DQN's weights are spread wider than those of PPO with the same network and initialisation",
        judgement=Wider(1.0, "ppo", "control"),
        schemes=STATISTICS,
        cells=over("dqn", "cartpole acrobot lunarlander mountaincar"),
        slug="overppocontrol",
    ),
)
