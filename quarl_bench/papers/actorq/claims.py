"""ActorQ's claims (QuaRL's third system; the code's README of 2021 and arXiv's last version of 2022), on paired runs.

Thresholds are shares of what the fp32 run takes, so that 1.5 times as fast is at most 1/1.5 of its time.
"""

from quarl_bench.judging.claim import Cell, Claim, over
from quarl_bench.judging.rules.judgement import Judgement
from quarl_bench.papers.actorq.judgements import (
    LOAD,
    PULL,
    STEP,
    LearnsAsWell,
    ReachesSooner,
    Regime,
    StageTakes,
    StepsForLess,
    StepsSooner,
    TakesLess,
    TwinTakes,
)

CARTPOLE = over("dqn", "cartpole")
CHEETAH = over("d4pg", "cheetahrundmc")
WALKER = over("d4pg", "walkerwalkdmc")
FINGER = over("d4pg", "fingerspindmc")
ONE = Regime(actors=1)
ALONE = Regime(actors=1, widths=(2048, 2048, 2048))
LARGE = Regime(actors=2, widths=(2048, 2048, 2048))  # the paper's size
LEARNING = Regime(actors=1, widths=(512, 512, 512))  # of the runs that learn a task of DeepMind Control here
LEARNED = (  # the tasks that LEARNING is about: a name, what is learned, and where
    ("walker", "where a walker learns to walk", WALKER),
    ("cheetah", "where a cheetah learns to run", CHEETAH),
)
FASTER = "README, ActorQ: 1.5x-2.5x"
LOSSLESS = "README, ActorQ: no loss in reward"


def _compare(id_: str, where: str, says: str, judgement: Judgement, cells: tuple[Cell, ...]) -> Claim:
    """A claim about actors in fewer bits, of either precision, beside fp32 ones."""
    slug = id_.replace("actorq", "actor").replace("-", "")
    return Claim(id_, where, says, judgement, ("fp16", "int8"), cells, slug=slug)


CLAIMS = (
    Claim(
        "actorq-time",
        where=FASTER,
        says="with int8 actors training reaches 95% of the fp32 run's best return in at most 1/1.5 of its time",
        judgement=ReachesSooner(0.667, regime=ONE),
        schemes=("int8",),
        cells=CARTPOLE,
        slug="actortime",
    ),
    *(
        _compare(
            f"actorq-time-{name}",
            FASTER,
            f"{task}, training with an actor of 512,512,512 in so few bits reaches 95% of the fp32 run's best return "
            "in at most 1/1.5 of its time",
            ReachesSooner(0.667, regime=LEARNING),
            cells,
        )
        for name, task, cells in LEARNED
    ),
    _compare(
        "actorq-rate",
        FASTER,
        "two actors of 2048,2048,2048 in so few bits do as many steps as fp32 ones in at most 1/1.5 of their time",
        StepsSooner(0.667, regime=LARGE),
        CHEETAH,
    ),
    _compare(
        "actorq-rate-walker", FASTER, "the same where a walker learns to walk", StepsSooner(0.667, regime=LARGE), WALKER
    ),
    _compare(
        "actorq-rate-finger",
        FASTER,
        "the same where a finger learns to spin a body",
        StepsSooner(0.667, regime=LARGE),
        FINGER,
    ),
    _compare(
        "actorq-rate-small",
        FASTER,
        "two actors of 512,512,512 in so few bits do as many steps as fp32 ones in at most 1/1.5 of their time",
        StepsSooner(0.667, regime=Regime(actors=2, widths=(512, 512, 512))),
        CHEETAH,
    ),
    Claim(
        "actorq-rate-most",
        where="arXiv v6, abstract: up to 5.41x",
        says="two actors of 2048,2048,2048 in int8 do as many steps as fp32 ones in at most 1/5.41 of their time",
        judgement=StepsSooner(0.185, regime=LARGE),
        schemes=("int8",),
        cells=CHEETAH,
        slug="actorratemost",
    ),
    Claim(
        "actorq-return",
        where=LOSSLESS,
        says="what is learned from int8 actors keeps 95% of the return of what is learned from fp32 ones",
        judgement=LearnsAsWell(0.05, regime=ONE),
        schemes=("int8",),
        cells=(*CARTPOLE, *over("d4pg", "mountaincarcontinuous"), *over("a2c", "cartpole")),
        slug="actorreturn",
    ),
    *(
        _compare(
            f"actorq-return-{name}",
            LOSSLESS,
            f"{task}, what is learned from an actor of 512,512,512 in so few bits keeps 95% of the return of what is "
            "learned from an fp32 one",
            LearnsAsWell(0.05, regime=LEARNING),
            cells,
        )
        for name, task, cells in LEARNED
    ),
    Claim(
        "actorq-step",
        where="README, training breakdown: step",
        says="an int8 actor's step (environment and inference) takes at most 1/1.5 of an fp32 one's at 2048,2048,2048",
        judgement=StageTakes(0.667, STEP, regime=ALONE),
        schemes=("int8",),
        cells=CHEETAH,
        slug="actorstep",
    ),
    Claim(
        "actorq-pull",
        where="README, training breakdown: pull and deserialize",
        says="an actor in so few bits pulls and deserializes its weights in at most 95% of an fp32 one's time",
        judgement=StageTakes(0.95, PULL, regime=ALONE),
        schemes=("fp16", "int8"),
        cells=CHEETAH,
        slug="actorpull",
    ),
    Claim(
        "actorq-load",
        where="README, training breakdown: load state dict",
        says="loading fp16 weights is expensive: an fp32 actor loads its in at most half of an fp16 one's time",
        judgement=TwinTakes(0.5, LOAD, regime=ALONE),
        schemes=("fp16",),
        cells=CHEETAH,
        slug="actorload",
    ),
    Claim(
        "actorq-energy",
        where="arXiv v6, abstract: carbon 1.9x-3.76x less",
        says="in CPU seconds, a proxy of energy, int8 actors reach 95% of the fp32 run's best return at 1/1.9 "
        "of the cost",
        judgement=TakesLess(0.526, regime=ONE),
        schemes=("int8",),
        cells=CARTPOLE,
        slug="actorenergy",
    ),
    Claim(
        "actorq-energy-rate",
        where="arXiv v6, abstract: carbon 1.9x-3.76x less",
        says="in CPU seconds, a proxy of energy, two actors of 2048,2048,2048 in int8 do as many steps as fp32 ones at "
        "1/1.9 of the cost",
        judgement=StepsForLess(0.526, regime=LARGE),
        schemes=("int8",),
        cells=CHEETAH,
        slug="actorenergyrate",
    ),
)
