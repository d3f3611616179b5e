"""LQCC's quantizer applied after training: the arm without quantization-aware training."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from quarl_bench.cells import Member, PolicySet, calibrate, find_home
from quarl_bench.errors import QuarlError
from quarl_bench.policy.policy import IntegerPolicy, Policy, PolicyNet
from quarl_bench.quant.integer import IntegerNet
from quarl_bench.quant.learned import quantize_after
from quarl_bench.quant.requantize import Requantization
from quarl_bench.quant.scheme import Scheme
from quarl_bench.spec import Case

SUFFIX = "ptq"  # of the scheme's name in ids and keys


def quantize_untrained(policies: PolicySet, scheme: str) -> PolicySet:
    """fp32 policies as integers under i<bits>c<bits>o<bits>: scales watched on their own states, nothing learned."""
    parsed, case = Scheme.parse(scheme), policies.case

    def quantizing(member: Member) -> Callable[[], Policy]:
        return lambda: quantize_policy(member.policy, parsed, calibrate(member.policy, find_home(member.stored, case)))

    members = tuple(replace(member, build=quantizing(member)) for member in policies.members)
    return PolicySet(Case(case.algo, case.environment, f"{parsed.name}{SUFFIX}", case.origin), members)


def quantize_policy(policy: Policy, scheme: Scheme, observations: Any) -> IntegerPolicy:
    """One fp32 policy, calibrated on raw `observations` (n, ...); QuarlError for one that is integers already."""
    if not isinstance(policy, PolicyNet):
        raise QuarlError(f"{scheme.name} after training needs an fp32 policy; this one holds integers")
    net = quantize_after(policy.net, scheme, policy.transform.apply(observations))
    return IntegerPolicy(policy.transform, IntegerNet.from_quantized(net, Requantization.THRESHOLDS), policy.head)
