"""Returns of the tasks by configuration: what is there of what a sentence asks for."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from quarl_bench.papers.lqcc.parity import Returns
from quarl_bench.papers.lqcc.selection import Configuration, Finder
from quarl_bench.spec import Outcome, Verdict

Tasks = Mapping[str, tuple[Returns, Finder]]  # by task: fp32 returns, none if not run; and those of a configuration


def find_gaps(reference: Returns, find: Finder, wanted: Sequence[Configuration]) -> list[str]:
    """What of fp32 and `wanted` has fewer than two policies."""
    found = (("fp32", reference), *((wish.scheme, find(wish)) for wish in dict.fromkeys(wanted)))
    return [name for name, returns in found if returns is None or returns.size < 2]


def limit_to(verdict: Verdict, missing: Sequence[str]) -> Verdict:
    """The verdict, partial and with its gaps where there are any."""
    return replace(verdict, outcome=Outcome.PARTIAL, missing=tuple(missing)) if missing else verdict


def sweep_bits(scope: str, bits: Sequence[int]) -> list[Configuration]:
    """A configuration per width, of which `scope` has that many bits."""
    return [Configuration.of_scope(scope, width) for width in bits]


def gather_returns(find: Finder, scope: str, bits: Sequence[int]) -> list[Returns]:
    """The returns at every width that was run."""
    return collect_returns(find, sweep_bits(scope, bits))


def collect_returns(find: Finder, wanted: Sequence[Configuration]) -> list[Returns]:
    """The returns of those configurations that were run."""
    return [returns for returns in map(find, wanted) if returns is not None]


def count_fewest(tasks: Tasks) -> int:
    """Policies of the task that has fewest in fp32."""
    return min(reference.size for reference, _ in tasks.values())
