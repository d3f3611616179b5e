"""Small artefacts that several test files send to boards."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from quarl_bench.backends.export import export_policy
from quarl_bench.checking.costs import ArtefactCost, open_builder, time_artefacts
from quarl_bench.checking.subject import Subject
from quarl_bench.policies.head import ActionHead, HeadKind
from quarl_bench.policies.observation import ObservationTransform
from quarl_bench.policies.policy import PolicyNet, deployable
from quarl_bench.quantization.scheme import Scheme
from tests.support.strategies import inputs_of, make_net

WIDTHS = (24, 32, 32, 4)


def export_pair(folder: Path, widths: tuple[int, ...] = WIDTHS, backend: str = "litert") -> tuple[Path, Path]:
    """The same small policy in fp32 and in int8."""
    net = make_net(*widths)
    policy = PolicyNet(ObservationTransform(net.input_shape), net, ActionHead(HeadKind.ARGMAX))
    observations = inputs_of(net, 300)
    for scheme in ("fp32", "int8"):
        quantized = deployable(policy.quantize(Scheme.parse(scheme), observations if scheme == "int8" else None))
        export_policy(quantized, folder / scheme, observations, scheme=scheme, source_sha256="0" * 64, backend=backend)
    return folder / "fp32", folder / "int8"


def price_artefacts(subject: Subject, schemes: Sequence[str], backends: Sequence[str]) -> list[ArtefactCost]:
    """Size and time of every artefact, when all are built."""
    with open_builder(subject, backends) as builder:
        return [*time_artefacts(builder.build(schemes))]


def exchange_output(artefact: Path, folder: Path) -> Path:
    """A copy of an artefact whose golden output of pair 7, element 2 is another one."""
    from dataclasses import replace

    from quarl_bench.backends.artefact import read_artefact, write_artefact

    whole = read_artefact(artefact)
    outputs = np.array(whole.golden.outputs)
    outputs[7, 2] += 1
    write_artefact(replace(whole, golden=replace(whole.golden, outputs=outputs)), folder)
    return folder
