"""Every claim of LQCC: bits and selection (section 3), noise, training against quantizing afterwards, and hardware.

Schemes read i<bits of the input>c<of weights and inner activations>o<of the output>h<hidden width, unless 256>. Of
origin "authors" are the returns of the authors' own runs, which are no part of this package; of origin "lqcc" are ours.
A scheme names the end of the sweep that a sentence is about. "ours" in `where`: the sentence is not the paper's.
"""

from quarl_bench.judging.claim import Claim, over
from quarl_bench.judging.rules.judgement import Judgement
from quarl_bench.papers.lqcc.judgements.arms import (
    ActsAlike,
    EndsAlike,
    Higher,
    LearnsAlike,
    NormalizationCosts,
    Normalizes,
)
from quarl_bench.papers.lqcc.judgements.designs import (
    DesignFits,
    DesignLatency,
    DesignSpeedup,
    ModelBlocks,
    ModelLatency,
    ModelTables,
    NoneFits,
)
from quarl_bench.papers.lqcc.judgements.tasks import (
    Bottleneck,
    Costs,
    FewerInputBits,
    FlatOutput,
    Matches,
    MatchesRaw,
    NarrowCosts,
    OneReading,
    ReturnsLess,
    ReturnsMore,
    SelectedMatch,
    SelectsPrinted,
)
from quarl_bench.papers.lqcc.selected_claims import OWN, say_of_selected

TASKS = "humanoidv4 walker2dv4 antv4 halfcheetahv4 hopperv4"
AUTHORS = "authors"  # of claims that are judged on the returns of the authors' own runs
ALL_TASKS = over("sac", TASKS)
DDPG_TASKS = over("ddpg", TASKS)
THREE_TASKS = over("sac", "walker2dv4 antv4 hopperv4")


def say_of_both(
    name: str, slug: str, where: str, says: str, judgement: Judgement, schemes: tuple[str, ...],
    cells: tuple[tuple[str, str], ...] = ALL_TASKS, own_cells: tuple[tuple[str, str], ...] = (), table: str = "",
    *, replay: bool = False,
) -> tuple[Claim, Claim]:  # fmt: skip
    """One sentence on the authors' runs, of which it may be a replay, and, with `-own` behind its id, on ours."""
    theirs = Claim(
        f"lqcc-{name}", where, says, judgement, schemes, cells, slug=slug, origin=AUTHORS, table=table, replay=replay
    )  # fmt: skip
    ours = Claim(
        f"lqcc-{name}-own", where, says, judgement, schemes, own_cells or cells, slug=f"{slug}own", origin=OWN,
        table=table,
    )  # fmt: skip
    return theirs, ours


BITS = (
    *say_of_both(
        "bits", "bits", "section 3.1, Figure 1, SAC, scope all",
        "with every part at 3 to 8 bits the mean return lies inside fp32's band of one SD in at least 80% of the "
        "cells, HalfCheetah excepted", Matches(0.8, "all", drawn=True), ("i3c3o3",),
        over("sac", "humanoidv4 walker2dv4 antv4 hopperv4"),
    ),
    Claim(
        "lqcc-core", "section 3.1, Figure 1, SAC, scope core",
        "with weights and inner activations at 3 to 8 bits the mean return lies inside fp32's band of one SD in at "
        "least 80% of the cells", Matches(0.8, "core"), ("i8c3o8",), ALL_TASKS, slug="core", origin=AUTHORS,
    ),
    Claim(
        "lqcc-core-own", "section 3.1, Figure 1, scope core; for DDPG Figure 6",
        "with weights and inner activations at 3 to 8 bits the mean return lies inside fp32's band of one SD in at "
        "least 80% of the cells", Matches(0.8, "core", drawn=True), ("i8c3o8",), (*ALL_TASKS, *DDPG_TASKS),
        slug="coreown", origin=OWN,
    ),
    *say_of_both(
        "bottleneck", "bottleneck", "section 3.1",
        "at 2 to 4 bits this part alone costs less return than the input alone, on average over tasks and bits",
        Bottleneck(0.0), ("i8c2o8", "i8c8o2"),
    ),
    *say_of_both(
        "output-least", "outputleast", "section 3.1",
        "at 2 to 4 bits the output alone costs less return than the core alone, on average over tasks and bits",
        Bottleneck(0.0, "core"), ("i8c8o2",),
    ),
    *say_of_both(
        "output", "output", "section 3.1", "3 to 7 output bits are as good as 8, on average within 5% of fp32's return",
        FlatOutput(0.05), ("i8c8o3",),
    ),
    *say_of_both(
        "two-bit-output", "output", "section 3.1", "2 output bits cost return against 8", Costs(0.0), ("i8c8o2",)
    ),
    *say_of_both(
        "two-bit-core", "twobitcore", "section 3.2, Figure 1, scope core",
        "with a core of 2 bits the mean return lies inside fp32's band of one SD on Walker2d, Ant and Hopper",
        Matches(0.8, "core", (2,)), ("i8c2o8",), THREE_TASKS,
    ),
    *say_of_both(
        "halfcheetah-bits", "halfcheetahbits", "section 3.1, Figure 1, HalfCheetah",
        "at so few bits in this scope the return is below that with 8", Costs(0.0), ("i5c5o5", "i5c8o8", "i8c2o8"),
        over("sac", "halfcheetahv4"),
    ),
    *say_of_both(
        "halfcheetah-width", "halfcheetahwidth", "section 3.1, appendix B, HalfCheetah",
        "so narrow hidden layers return less than those of 256 at the same bits", NarrowCosts(0.0),
        ("i8c3o8h128", "i8c3o8h16"), over("sac", "halfcheetahv4"),
    ),
    *say_of_both(
        "input-bits", "inputbits", "section 3.2, Figure 1 against Table 1",
        "with the selected core and width fewer input bits match fp32 than with 8 bits and layers of 256, in at least "
        "80% of the tasks", FewerInputBits(0.8), ("i8c8o8",), table="table1",
    ),
)  # fmt: skip

# What the paper's rule leaves open, and what follows from either reading, stands beside what it selects.
SELECTION = (
    *say_of_both(
        "table1", "selection", "Table 1", "the three-step rule selects the printed configurations",
        SelectsPrinted(1.0), ("i8c8o8",), table="table1", replay=True,
    ),
    Claim(
        "lqcc-sensitivity", "ours: section 3.2, Table 1",
        "of four readings of the rule only the one-sided one with the sample SD selects the printed configurations",
        OneReading(0.25), ("i8c8o8",), ALL_TASKS, slug="sensitivity", origin=AUTHORS, table="table1",
        replay=True,
    ),
    *say_of_both(
        "parity", "parity", "section 3.2, Table 1",
        "the selected configurations' mean returns lie inside fp32's band of one SD in at least 80% of the tasks",
        SelectedMatch(0.8), ("i8c8o8",), table="table1", replay=True,
    ),
)  # fmt: skip

# Appendix C: normalization costs DDPG's fp32 return, and with it quantized nets are on par with fp32 without. Of the
# core the paper sees a drop at 2 bits only, on HalfCheetah, and none on Walker2d.
DDPG = (
    Claim(
        "lqcc-ddpg-gains-own", "section 3.1, DDPG",
        "at 2 to 4 bits everywhere the mean return is above fp32's, on average over Humanoid, Walker2d and Ant",
        ReturnsMore(0.0), ("i4c4o4",), over("ddpg", "humanoidv4 walker2dv4 antv4"), slug="gainsown", origin=OWN,
    ),
    Claim(
        "lqcc-ddpg-normalization-own", "appendix C, DDPG in fp32",
        "normalized observations return less than raw ones, on average over the tasks",
        NormalizationCosts(0.0), ("fp32",), DDPG_TASKS, slug="ddpgnormalizationown", origin=OWN,
    ),
    Claim(
        "lqcc-ddpg-raw-own", "appendix C, Figure 6",
        "normalized, with weights and inner activations at 3 to 8 bits, the mean return lies inside the band of raw "
        "fp32 in at least 80% of the cells", MatchesRaw(0.8, "core"), ("i8c3o8",), DDPG_TASKS, slug="ddpgrawown",
        origin=OWN,
    ),
    Claim(
        "lqcc-ddpg-two-bit-core-own", "section 4, Figure 1 (DDPG)",
        "with a core of 2 bits the mean return is below fp32's", ReturnsLess(0.0), ("i8c2o8",),
        over("ddpg", "halfcheetahv4"), slug="ddpgtwobitcoreown", origin=OWN,
    ),
    Claim(
        "lqcc-ddpg-output-least-own", "section 3.1, DDPG",
        "at 2 to 4 bits the output alone costs less return than the core alone, on average over tasks and bits",
        Bottleneck(0.0, "core"), ("i8c8o2",), DDPG_TASKS, slug="ddpgoutputleastown", origin=OWN,
    ),
    Claim(
        "lqcc-ddpg-walker2d-own", "section 4, Figure 1 (DDPG)",
        "with a core of 2 bits the mean return lies inside fp32's band of one SD", Matches(0.8, "core", (2,)),
        ("i8c2o8",), over("ddpg", "walker2dv4"), slug="ddpgwalker2down", origin=OWN,
    ),
    Claim(
        "lqcc-sac-over-ddpg-own", "section 3.1, fp32",
        "SAC returns more than DDPG in full precision, on average over the tasks", Higher(0.0), ("fp32",), ALL_TASKS,
        slug="sacoverddpgown", origin=OWN,
    ),
)  # fmt: skip

# Whether training in half precision may stand in for fp32; Table 6; and exact integers.
TRAINING = (
    Claim(
        "lqcc-half-precision", "ours: appendix A, trained in bf16",
        "over the learning curve bf16's mean return lies within 5% of fp32's", LearnsAlike(0.05), ("fp32",),
        over("sac", "pendulum"), slug="halfprecision", origin=OWN,
    ),
    Claim(
        "lqcc-half-precision-end", "ours: appendix A, trained in bf16",
        "over the last quarter of the learning curve bf16's mean return lies within 5% of fp32's", EndsAlike(0.05),
        ("fp32",), over("sac", "pendulum"), slug="halfprecisionend", origin=OWN,
    ),
    Claim(
        "lqcc-normalization", "Table 6, SAC in fp32",
        "normalized observations return more than raw ones, on average over the tasks", Normalizes(0.0), ("fp32",),
        ALL_TASKS, slug="normalization", origin=AUTHORS, table="table6", replay=True,
    ),
    Claim(
        "lqcc-normalization-own", "Table 6, SAC in fp32",
        "normalized observations return more than raw ones, on average over the tasks", Normalizes(0.0), ("fp32",),
        ALL_TASKS, slug="normalizationown", origin=OWN,
    ),
    Claim(
        "lqcc-integers", "section 2.3",
        "integers, thresholds and a table act as the net that was trained, in 99.9% of 100,000 visited states",
        ActsAlike(0.999), ("i6c2o8h16",), over("sac", "hopperv4"), slug="integers", origin=OWN,
    ),
)  # fmt: skip

# Latencies by FINN's formulas, and by our own designs. 1.0 of a printed latency is that latency.
FASTER_TASKS = over("sac", "humanoidv4 walker2dv4 antv4 hopperv4")
FITS = "HalfCheetah's 8-bit design does not fit an XC7A15T, and with a core of 4 bits it does"
DESIGNS = (
    Claim(
        "lqcc-finn-latency", "Table 3, by FINN's formulas",
        "FINN's cycles at LQCC's folding targets are the printed latencies at 100 MHz, to within 20%",
        ModelLatency(0.2), ("i8c4o8",), ALL_TASKS, slug="finnlatency", pooled=True,
    ),
    Claim(
        "lqcc-finn-luts", "Table 3, by FINN's formulas",
        "FINN's look-up tables at LQCC's folding targets are the printed ones, to within 20%",
        ModelTables(0.2), ("i8c4o8",), ALL_TASKS, slug="finnluts", pooled=True, table="table3",
    ),
    Claim(
        "lqcc-finn-bram", "Table 3, by FINN's formulas",
        "FINN's block RAMs for the weights at LQCC's folding targets are the printed ones, to within half a block",
        ModelBlocks(0.5), ("i8c4o8",), ALL_TASKS, slug="finnbram", pooled=True, table="table3",
    ),
    Claim(
        "lqcc-rtl-latency", "ours: Table 3, by our designs in simulation",
        "each selected policy acts in fewer cycles than its printed latency has at 100 MHz", DesignLatency(0.99),
        ("i8c4o8",), ALL_TASKS, slug="rtllatency", pooled=True, table="table3",
    ),
    Claim(
        "lqcc-finn-speedup", "section 3.4, Table 3, by FINN's formulas",
        "a net of 256 with a core of 4 bits takes 1.5 times (Walker2d), 10 times (Ant, Humanoid) or 1000 times "
        "(Hopper) the selected policy's cycles, or more", DesignSpeedup(0.99), ("i8c4o8",), FASTER_TASKS,
        slug="finnspeedup", pooled=True, table="speedup",
    ),
    Claim(
        "lqcc-rtl-speedup", "ours: section 3.4, Table 3, by our designs in simulation",
        "a net of 256 with a core of 4 bits takes more cycles than each selected policy, HalfCheetah's excepted",
        DesignSpeedup(0.99), ("i8c4o8",), FASTER_TASKS, slug="rtlspeedup", pooled=True,
    ),
    Claim(
        "lqcc-finn-fit", "section 3.4, by FINN's formulas", FITS, DesignFits(1.0), ("i8c4o8",),
        over("sac", "halfcheetahv4"), slug="finnfit", pooled=True,
    ),
    Claim(
        "lqcc-finn-misfit", "section 3.4, by FINN's formulas",
        "no 8-bit design with layers of 256 fits an XC7A15T, HalfCheetah's apart", NoneFits(1.0), ("i8c8o8",),
        FASTER_TASKS, slug="finnmisfit", pooled=True,
    ),
    Claim(
        "lqcc-rtl-fit", "section 3.4, by our designs, estimated", FITS, DesignFits(1.0), ("i8c4o8",),
        over("sac", "halfcheetahv4"), slug="rtlfit", pooled=True,
    ),
)  # fmt: skip

CLAIMS = (*BITS, *SELECTION, *say_of_selected(), *DESIGNS, *DDPG, *TRAINING)
