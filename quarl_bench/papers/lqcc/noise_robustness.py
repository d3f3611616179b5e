"""LQCC's Figure 3: returns under input noise, the area under that curve, and the area relative to a clean return."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from quarl_bench.environments.registry import find_environment
from quarl_bench.errors import SpecError
from quarl_bench.experiments.cells import Cells, PolicySet, environment_for
from quarl_bench.experiments.member import measure_member
from quarl_bench.judging.retention import judge_retention
from quarl_bench.judging.statistics import Floats
from quarl_bench.quantization.scheme import Scheme
from quarl_bench.spec import Measurement, name_seeds

HIGH = 0.3  # of the sigmas; the paper sees quantized policies above fp32 "at higher noise levels"
SIGMAS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)


@dataclass(frozen=True)
class NoiseCurve:
    """Measurements of the same policies on the same episodes, one per sigma, the first without noise."""

    sigmas: tuple[float, ...]
    points: tuple[Measurement, ...]

    def __post_init__(self) -> None:
        if len(self.sigmas) != len(self.points) or len(self.sigmas) < 2 or self.sigmas[0] != 0.0:
            raise SpecError(f"noise curve over {self.sigmas}: begin at 0 and name at least one more sigma")

    @property
    def area(self) -> Measurement:
        """Mean return over the range of sigma (trapezoids), per policy and episode: in units of return."""
        return self._integrate(np.array([point.returns for point in self.points]))

    @property
    def noisy_area(self) -> Measurement:
        """The same over the higher levels alone, from `HIGH` on."""
        high = sum(sigma < HIGH for sigma in self.sigmas)
        if len(self.sigmas) - high < 2:
            raise SpecError(f"noise curve over {self.sigmas}: it has fewer than two levels from {HIGH} on")
        return self._integrate(np.array([point.returns for point in self.points[high:]]))

    @property
    def relative_area(self) -> Measurement:
        """The same, with every policy's returns as shares of its own mean clean return."""
        returns = np.array([point.returns for point in self.points])
        clean = returns[0].mean(axis=1, keepdims=True)
        if (clean <= 0).any():
            raise SpecError("a clean return is not positive: nothing to take shares of; train longer")
        return self._integrate(returns / clean)

    def _integrate(self, returns: Floats) -> Measurement:
        """Over the last levels of the curve, as many as there are `returns`."""
        gaps = np.diff(self.sigmas[-len(returns) :])
        weights = (np.append(gaps, 0.0) + np.append(0.0, gaps)) / 2 / gaps.sum()
        mean = np.tensordot(weights, returns, 1)
        return replace(self.points[0], returns=tuple(map(tuple, mean.tolist())))


def compare_points(reference: NoiseCurve, measured: NoiseCurve) -> list[str]:
    """The ratio of mean returns at every sigma above 0, each with an interval of its own, in words."""
    lines = []
    for sigma, base, other in list(zip(reference.sigmas, reference.points, measured.points, strict=True))[1:]:
        found = judge_retention(base, other)
        estimate = "unknown" if found.estimate is None else f"{found.estimate:.3g}"
        limits = "no interval" if found.low is None else f"[{found.low:.3g}, {found.high:.3g}]"
        lines.append(f"under noise of SD {sigma:g} the ratio is {estimate} {limits}")
    return lines


def measure_noise(cells: Cells, policies: PolicySet, sigmas: Sequence[float] = SIGMAS) -> NoiseCurve:
    """The curve of a cell's policies on the protocol's environment seeds, through the store."""
    return NoiseCurve(tuple(sigmas), tuple(_measure(cells, policies, sigma) for sigma in sigmas))


def _measure(cells: Cells, policies: PolicySet, sigma: float) -> Measurement:
    case, scheme = policies.case, Scheme.parse(policies.case.scheme)
    seeds = cells.protocol.list_seeds(find_environment(case.environment))
    rows = [
        measure_member(cells.store, member, environment_for(member.stored, case), seeds, scheme=scheme, sigma=sigma)
        for member in policies.members
    ]
    return Measurement(
        policies=tuple(row.policies[0] for row in rows),
        environment_seeds=tuple(seeds),
        episodes=name_seeds(seeds),  # with noise on them, starts that are alike lead apart
        returns=tuple(row.returns[0] for row in rows),
        lengths=tuple(row.lengths[0] for row in rows),
    )
