"""LQCC's claims on the configuration that Table 1 selects for each task: returns, noise, training, convergence."""

from collections.abc import Iterator
from dataclasses import dataclass

from quarl_bench.judging.claim import Claim, over
from quarl_bench.judging.rules.cells import Keeps
from quarl_bench.papers.lqcc.judgements.arms import KeepsCurve, LosesUntrained, TrainedHigher

OWN = "lqcc"  # the origin of our own policies


@dataclass(frozen=True)
class Selected:
    """What Table 1 selects for a task, and the origin of our fp32 policies of that width."""

    task: str
    name: str
    scheme: str
    width_origin: str

    @property
    def untrained(self) -> str:
        """The scheme of as many bits, quantized after training."""
        return f"{self.scheme.partition('h')[0]}ptq"


SELECTED = (
    Selected("humanoid", "Humanoid", "i4c3o8h16", "lqcch16"),
    Selected("walker2d", "Walker2d", "i3c2o8h128", "lqcch128"),
    Selected("ant", "Ant", "i3c2o8h64", "lqcch64"),
    Selected("halfcheetah", "HalfCheetah", "i8c3o8", "lqcc"),
    Selected("hopper", "Hopper", "i6c2o8h16", "lqcch16"),
)
SMALL_MODELS = "section 1, post-training quantization of small models"


def say_of_selected() -> Iterator[Claim]:
    """The sentences on the selected configuration of every task, which is a claim of its own."""
    for one in SELECTED:
        cell, scheme, slug = over("sac", f"{one.task}v4"), (one.scheme,), one.task
        yield Claim(
            f"lqcc-selected-{one.task}", f"Table 1, {one.name}",
            "the selected configuration keeps at least 95% of fp32's return", Keeps(0.05), scheme, cell, origin=OWN,
        )  # fmt: skip
        yield Claim(
            f"lqcc-noise-{one.task}", f"Figure 3, {one.name}",
            "under noise of SD 0 to 0.5 on the normalized input the selected configuration keeps 95% of fp32's mean "
            "return", Keeps(0.05), scheme, cell, origin=OWN,
        )  # fmt: skip
        yield Claim(
            f"lqcc-noise-{one.task}-own", f"Figure 3, {one.name}, relative to each policy's own clean return",
            "under noise of SD 0 to 0.5 the selected configuration keeps 95% of the share of its clean return that "
            "fp32 keeps", Keeps(0.05), scheme, cell, origin=OWN,
        )  # fmt: skip
        yield Claim(
            f"lqcc-noise-{one.task}-high", f"abstract, section 3.3, Figure 3, {one.name}, the higher noise levels",
            "under noise of SD 0.3 to 0.5 the selected configuration returns more than fp32", Keeps(0.0), scheme, cell,
            origin=OWN,
        )  # fmt: skip
        yield Claim(
            f"lqcc-untrained-{one.task}", f"{SMALL_MODELS}, {one.name}",
            "quantized after training, a net of the selected width loses more than 5% of its return at the selected "
            "bits", LosesUntrained(0.05), (one.untrained,), cell, origin=one.width_origin,
            slug="untrained" if one.task == "hopper" else f"untrained{slug}",
        )  # fmt: skip
        yield Claim(
            f"lqcc-trained-{one.task}", f"{SMALL_MODELS}, {one.name}",
            "trained with the quantizer, a net of the selected width returns more at the selected bits than quantized "
            "after training", TrainedHigher(0.0), scheme, cell, origin=OWN, slug=f"trained{slug}",
        )  # fmt: skip
        yield Claim(
            f"lqcc-convergence-{one.task}", f"Figure 2, {one.name}",
            "over the learning curve the selected configuration keeps 95% of fp32's mean return", KeepsCurve(0.05),
            scheme, cell, origin=OWN, slug=f"convergence{slug}",
        )  # fmt: skip
