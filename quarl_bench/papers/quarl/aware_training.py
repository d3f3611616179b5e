"""QuaRL's claims on quantization-aware training: Table 1, and Figures 1 and 2 of the ICLR text.

Figure 2 shows tasks of its own; here it is asked on tasks that are cheap to train. Exploration is the variance of
action probabilities behind the quantization delay, in states that are the same for every policy and in those of the
policy's own deterministic episodes.
"""

from quarl_bench.judging.claim import Claim, over
from quarl_bench.judging.rules.cells import Keeps
from quarl_bench.judging.rules.returns import Count, Equivalent, Gains, MeanLoss, MostCells, SomeCells, Varies
from quarl_bench.judging.rules.training import Flatter, FlatterBehind, Ordered
from quarl_bench.papers.quarl.post_training import GAMES

WIDTHS = ("qat8", "qat6", "qat4", "qat2")
ACTOR_CRITIC = over("a2c ppo", "cartpole acrobot lunarlander")
TRAINED_CLASSIC = (*ACTOR_CRITIC, *over("ddpg", "mountaincarcontinuous pendulum"))

CLAIMS = (
    Claim(
        "table1-trained",
        where="Table 1, QAT and BW",
        says="quantization-aware training at this width costs this cell at most 5% of its return",
        judgement=Keeps(0.05),
        schemes=("qat8", "qat7", "qat6", "qat5", "qat4", "qat3", "qat2"),
        cells=(
            *over("a2c ppo", GAMES),
            *over("ddpg", "bipedalwalker halfcheetahbullet walker2dbullet"),
        ),
    ),
    Claim(
        "classic-trained",
        where="ours: Table 1, QAT and BW, on classic control",
        says="quantization-aware training at this width costs this cell at most 5% of its return",
        judgement=Keeps(0.05),
        schemes=WIDTHS,
        cells=(
            *over("a2c", "acrobot lunarlander"),
            *over("dqn", "cartpole acrobot lunarlander"),
            *over("ppo", "acrobot lunarlander"),
            *over("ddpg", "mountaincarcontinuous pendulum"),
        ),
    ),
    Claim(
        "table1-count",
        where="Table 1, caption",
        says="the paper conducts over 350 experiments; so many of its cells and widths can be run here",
        judgement=Count(350.0),
        schemes=(
            "fp32",
            "fp16",
            "w8",
            "w7",
            "w6",
            "w5",
            "w4",
            "w3",
            "w2",
            "int8",
            "qat8",
            "qat7",
            "qat6",
            "qat5",
            "qat4",
            "qat3",
            "qat2",
        ),
        cells=(
            *over("a2c dqn ppo", GAMES),
            *over("ddpg", "mountaincarcontinuous bipedalwalker halfcheetahbullet walker2dbullet"),
        ),
        slug="experiments",
    ),
    Claim(
        "figure2-holds",
        where="Figure 2 (QAT)",
        says="quantization-aware training at 8 or 6 bits costs at most 5% of the return in at least 80% of the cells",
        judgement=MostCells(0.05),
        schemes=("qat8", "qat6"),
        cells=TRAINED_CLASSIC,
        slug="qatholds",
        pooled=True,
    ),
    Claim(
        "figure2-drops",
        where="Figure 2 (QAT)",
        says="below 5 bits quantization-aware training loses more than 5% of the return on average",
        judgement=MeanLoss(0.05),
        schemes=("qat4", "qat2"),
        cells=TRAINED_CLASSIC,
        slug="qatdrops",
        pooled=True,
    ),
    Claim(
        "figure2-beats-ptq",
        where="abstract, Figure 2 (QAT)",
        says="quantization-aware training loses less than post-training quantization to as many bits, weights "
        "and activations",
        judgement=Gains(0.0, "int"),
        schemes=WIDTHS,
        cells=TRAINED_CLASSIC,
        slug="qatbeats",
        pooled=True,
    ),
    Claim(
        "figure2-beats-weights",
        where="abstract, Figure 2 (QAT against 8*)",
        says="quantization-aware training loses less than post-training quantization of the weights alone to "
        "as many bits",
        judgement=Gains(0.0, "w"),
        schemes=WIDTHS,
        cells=TRAINED_CLASSIC,
        slug="qatbeatsweights",
        pooled=True,
    ),
    Claim(
        "figure2-varies",
        where="ours: section 4, Figure 2, QAT",
        says="on a typical task returns vary more between training seeds with quantization-aware training than with "
        "post-training quantization of the weights to as many bits",
        judgement=Varies(1.0, "w"),
        schemes=WIDTHS,
        cells=TRAINED_CLASSIC,
        slug="qatvaries",
        pooled=True,
    ),
    Claim(
        "figure2-gains",
        where="abstract, section 4, Figure 2 (QAT)",
        says="in some cells quantization-aware training returns more than fp32",
        judgement=SomeCells(0.0),
        schemes=WIDTHS,
        cells=TRAINED_CLASSIC,
        slug="qatgains",
        pooled=True,
    ),
    Claim(
        "figure2-holds-dqn",
        where="ours: Figure 2 (QAT), DQN",
        says="quantization-aware training at 8 or 6 bits costs DQN at most 5% of the return in at least 80% "
        "of the cells",
        judgement=MostCells(0.05),
        schemes=("qat8", "qat6"),
        cells=over("dqn", "cartpole acrobot lunarlander"),
        slug="qatholds",
    ),
    Claim(
        "figure2-beats-dqn",
        where="ours: Figure 2 (QAT), DQN",
        says="DQN loses less by quantization-aware than by post-training quantization to as many bits, "
        "weights and activations",
        judgement=Gains(0.0, "int"),
        schemes=WIDTHS,
        cells=over("dqn", "cartpole acrobot lunarlander"),
        slug="qatbeats",
    ),
    Claim(
        "exploration-fixed",
        where="Figure 1 (exploration)",
        says="training with the quantizer lowers the variance of action probabilities, in fixed states",
        judgement=Flatter(1.0, "fixed"),
        schemes=WIDTHS,
        cells=ACTOR_CRITIC,
        slug="flatterfixed",
        pooled=True,
    ),
    Claim(
        "exploration-delay-fixed",
        where="Figure 1 (exploration)",
        says="the variance of action probabilities falls, beside fp32's, when the quantizer begins to round, in fixed "
        "states",
        judgement=FlatterBehind(1.0, "fixed"),
        schemes=WIDTHS,
        cells=ACTOR_CRITIC,
        slug="flatterbehind",
        pooled=True,
    ),
    Claim(
        "exploration-norm-fixed",
        where="Figure 1 (exploration)",
        says="layer normalization lowers the variance of action probabilities, in fixed states",
        judgement=Flatter(1.0, "fixed"),
        schemes=("fp32",),
        cells=ACTOR_CRITIC,
        slug="normflatterfixed",
        origin="layernorm",
        pooled=True,
    ),
    Claim(
        "exploration-order-fixed",
        where="Figure 1 (exploration)",
        says="the fewer bits a policy is trained with, the lower its variance of action probabilities, in fixed states",
        judgement=Ordered(0.0, "fixed"),
        schemes=WIDTHS,
        cells=ACTOR_CRITIC,
        slug="orderfixed",
        pooled=True,
    ),
    Claim(
        "exploration-visited",
        where="Figure 1 (exploration)",
        says="training with the quantizer lowers the variance of action probabilities, in visited states",
        judgement=Flatter(1.0, "visited"),
        schemes=WIDTHS,
        cells=ACTOR_CRITIC,
        slug="flattervisited",
        pooled=True,
    ),
    Claim(
        "exploration-norm-visited",
        where="Figure 1 (exploration)",
        says="layer normalization lowers the variance of action probabilities, in visited states",
        judgement=Flatter(1.0, "visited"),
        schemes=("fp32",),
        cells=ACTOR_CRITIC,
        slug="normflattervisited",
        origin="layernorm",
        pooled=True,
    ),
    Claim(
        "exploration-order-visited",
        where="Figure 1 (exploration)",
        says="the fewer bits a policy is trained with, the lower its variance of action probabilities, in "
        "visited states",
        judgement=Ordered(0.0, "visited"),
        schemes=WIDTHS,
        cells=ACTOR_CRITIC,
        slug="ordervisited",
        pooled=True,
    ),
    Claim(
        "exploration-return",
        where="Figure 1 (exploration), rewards",
        says="whatever it explores, training with the quantizer returns what fp32 does, to within 5% on average",
        judgement=Equivalent(0.05, "fp32"),
        schemes=WIDTHS,
        cells=ACTOR_CRITIC,
        slug="explorationreturn",
        pooled=True,
    ),
)
