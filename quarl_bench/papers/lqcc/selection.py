"""LQCC's three-step selection (section 3.2): fewest core bits, then narrowest hidden layers, then fewest input bits.

Each step keeps what the one before it chose and takes the smallest value that matches fp32, even where a larger one
does not. Returns come from a function, so that the same rule replays published runs and trains new ones.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from quarl_bench.errors import SpecError
from quarl_bench.papers.lqcc.judgements.tasks import SCOPES
from quarl_bench.papers.lqcc.parity import VARIANTS, Difference, Parity, Returns, Summary, compare_summaries
from quarl_bench.quantization.scheme import Family, Scheme

BITS = tuple(range(2, 9))
WIDTHS = (16, 32, 64, 128, 256)
RESAMPLES = 1000
FEWEST = 3  # policies that can be resampled: of two, half of the draws have no spread


@dataclass(frozen=True, order=True)
class Configuration:
    """A quantized net: bits of its parts, and the width of its hidden layers."""

    core: int = 8
    width: int = 256
    input: int = 8
    output: int = 8

    @classmethod
    def of_scope(cls, scope: str, bits: int) -> "Configuration":
        """Only the parts of a scope have `bits`, the others 8: all, input, output, core (section 3.1)."""
        if scope not in SCOPES:
            raise SpecError(f"unknown scope {scope!r}; known are {', '.join(SCOPES)}")
        return cls(**dict.fromkeys(SCOPES[scope], bits))

    @classmethod
    def find_scope(cls, scheme: str) -> tuple[str, int]:
        """The scope that `scheme` limits, and its bits there; SpecError where it is none of section 3.1's."""
        for scope in SCOPES:
            for bits in BITS:
                if cls.of_scope(scope, bits).scheme == scheme:
                    return scope, bits
        raise SpecError(f"{scheme} limits none of {', '.join(SCOPES)} alone; use Configuration")

    @classmethod
    def parse(cls, scheme: str) -> "Configuration":
        """The configuration that `scheme` names; SpecError where it is of another family."""
        parsed = Scheme.parse(scheme)
        if parsed.family is not Family.LEARNED or parsed.after:
            raise SpecError(f"{scheme} is no configuration; write i<bits>c<bits>o<bits>[h<width>]")
        return cls(parsed.bit_width, parsed.width or WIDTHS[-1], parsed.input_bits, parsed.output_bits)

    @property
    def scheme(self) -> str:
        """Its scheme's name; SpecError for impossible bits or widths."""
        width = "" if self.width == WIDTHS[-1] else f"h{self.width}"
        return Scheme.parse(f"i{self.input}c{self.core}o{self.output}{width}").name


@dataclass(frozen=True)
class Step:
    """One of the three: the field it chooses, and the values it may take, smallest first."""

    title: str
    field: str
    values: tuple[int, ...]


def list_steps(
    core: Iterable[int] = BITS, widths: Iterable[int] = WIDTHS, inputs: Iterable[int] = BITS
) -> tuple[Step, ...]:
    """The three steps over these values; SpecError for one without a value."""
    steps = tuple(
        Step(title, name, tuple(sorted(set(values))))
        for title, name, values in (
            ("core bits", "core", core),
            ("hidden width", "width", widths),
            ("input bits", "input", inputs),
        )
    )
    for step in steps:
        if not step.values:
            raise SpecError(f"{step.title}: nothing to choose from; name at least one value")
        for value in step.values:
            replace(Configuration(), **{step.field: value}).scheme  # noqa: B018 (refuses impossible ones)
    return steps


@dataclass(frozen=True)
class Decision:
    """One configuration held against fp32."""

    step: Step
    configuration: Configuration
    reference: Summary  # fp32
    found: Summary
    band: tuple[float, float]
    matches: bool

    @property
    def difference(self) -> Difference:
        """From fp32, with its interval."""
        return compare_summaries(self.reference, self.found)

    @property
    def value(self) -> int:
        """What the step tried."""
        return int(getattr(self.configuration, self.step.field))

    def explain(self) -> str:
        """In one line: the mean, the band, the rule's answer, and what the interval says."""
        low, high = self.band
        limits = f">= {low:.0f}" if high == float("inf") else f"in {low:.0f}..{high:.0f}"
        answer = f"{'matches' if self.matches else 'does not match'} ({limits})"
        difference = self.difference
        says = "below fp32" if difference.below else "above fp32" if difference.low > 0 else "undecided"
        found = f"mean {self.found.mean:.0f} of {self.found.policies} policies"
        return (
            f"{self.step.title}: {self.configuration.scheme}: {found} "
            f"{answer}; interval {difference.estimate:+.1%} [{difference.low:+.1%}, {difference.high:+.1%}]: {says}"
        )


@dataclass(frozen=True)
class Stability:
    """How often the rule selects the same configuration when the policies are drawn again from those at hand."""

    draws: int
    same: int
    open: int  # draws in which it asks for what was not run

    def describe(self) -> str:
        """How often resampling selects the same, in words."""
        rest = f"; in {self.open} it asks for what was not run" if self.open else ""
        return f"in {self.same} of {self.draws} resamples of the policies the rule selects the same{rest}"

    def describe_share(self) -> str:
        """In short: the share of the same, and of what is open."""
        rest = f" ({self.open / self.draws:.0%} open)" if self.open else ""
        return f"{self.same / self.draws:.0%}{rest}"


@dataclass(frozen=True)
class Selection:
    """What was chosen; `matched` is False where no core precision matched, and the best of them is returned.

    A later step without a match keeps what was chosen before it, and is named in `idle`.
    """

    configuration: Configuration
    matched: bool
    rule: Parity
    reference: Summary  # fp32
    decisions: tuple[Decision, ...] = field(repr=False)
    absent: tuple[Configuration, ...] = ()  # asked for, and not there
    idle: tuple[str, ...] = ()
    stability: Stability | None = None

    @property
    def chosen(self) -> Decision:
        """The last decision about the chosen configuration."""
        return next(d for d in reversed(self.decisions) if d.configuration == self.configuration)

    def is_printed(self, configuration: Configuration) -> bool:
        """Whether this one was selected, and not only returned for want of a match."""
        return self.matched and self.configuration == configuration

    def explain(self) -> list[str]:
        """Every decision, and the outcome."""
        end = self.configuration.scheme
        last = f"selected {end}" if self.matched else f"nothing matches fp32; the best is {end}"
        names = ", ".join(configuration.scheme for configuration in self.absent)
        without = f", without {names}, which were not run" if names else ""
        kept = [f"{title}: nothing tried matches; what was chosen before stays" for title in self.idle]
        end = f"{last} ({self.rule.name}{without}); intervals: 90%, Welch"
        again = [] if self.stability is None else [self.stability.describe()]
        return [*(decision.explain() for decision in self.decisions), *kept, end, *again]


Finder = Callable[[Configuration], Returns | None]  # None: not run


def select(
    reference: Returns,
    find_returns: Finder,
    *,
    rule: Parity | None = None,
    steps: Sequence[Step] | None = None,
    full: bool = False,
    tell: Callable[[Decision], None] = lambda _: None,
) -> Selection:
    """Apply the rule. A step tries its values upwards and ends at the first match; with `full` it tries them all.

    Configurations that were not run are left out and listed; `tell` hears every decision at once. SpecError when a step
    has none at all. The first step has to match; a later one without a match leaves what was chosen.
    """
    rule, fp32 = rule or Parity(), Summary.of(reference, "fp32 returns")
    band = rule.find_band(reference)
    chosen = Configuration()
    decisions: list[Decision] = []
    absent: list[Configuration] = []
    idle: list[str] = []
    for number, step in enumerate(steps or list_steps()):
        tried: list[Decision] = []
        for value in step.values:
            configuration = replace(chosen, **{step.field: value})
            returns = find_returns(configuration)
            if returns is None:
                absent.append(configuration)
                continue
            matches = rule.matches(reference, returns)
            tried.append(Decision(step, configuration, fp32, Summary.of(returns), band, matches))
            tell(tried[-1])
            if tried[-1].matches and not full:
                break
        if not tried:
            raise SpecError(
                f"{step.title}: of the configurations around {chosen.scheme} none was run with one of "
                f"{', '.join(map(str, step.values))}; name others"
            )
        decisions += tried
        matching = [decision for decision in tried if decision.matches]
        if matching:
            chosen = matching[0].configuration
        elif number:
            idle.append(step.title)
        else:
            best = max(tried, key=lambda decision: decision.found.mean)
            return Selection(best.configuration, False, rule, fp32, tuple(decisions), tuple(absent))
    return Selection(chosen, True, rule, fp32, tuple(decisions), tuple(absent), tuple(idle))


def resample(
    selection: Selection, reference: Returns, find_returns: Finder, steps: Sequence[Step] | None = None
) -> Selection:
    """The same selection with its stability: policies of every configuration are drawn again, with replacement.

    `find_returns` finds what was run, and trains nothing. Fewer than three policies tell nothing.
    """
    if min(selection.reference.policies, *(decision.found.policies for decision in selection.decisions)) < FEWEST:
        return selection
    steps = steps or list_steps()
    generator = np.random.default_rng(0)
    same = unfinished = 0
    for _ in range(RESAMPLES):
        drawn: dict[Configuration, Returns | None] = {}

        def draw(configuration: Configuration, drawn: dict[Configuration, Returns | None] = drawn) -> Returns | None:
            if configuration not in drawn:
                returns = find_returns(configuration)
                drawn[configuration] = None if returns is None else generator.choice(returns, returns.size)
            return drawn[configuration]

        try:
            again = select(generator.choice(reference, reference.size), draw, rule=selection.rule, steps=steps)
        except SpecError:  # a step of which nothing was run
            unfinished += 1
            continue
        if set(again.absent) - set(selection.absent):
            unfinished += 1
        else:
            same += (again.configuration, again.matched) == (selection.configuration, selection.matched)
    return replace(selection, stability=Stability(RESAMPLES, same, unfinished))


def vary_rule(
    tasks: Mapping[str, tuple[Returns, Finder]], printed: Mapping[str, Configuration]
) -> dict[Parity, dict[str, Selection]]:
    """The sensitivity table: under every variant of the rule, the tasks whose selection is not the printed one.

    Tasks are given as (fp32 returns, returns of a configuration).
    """
    found = {
        rule: {task: select(reference, find, rule=rule) for task, (reference, find) in tasks.items()}
        for rule in VARIANTS
    }
    return {
        rule: {task: chosen for task, chosen in chosens.items() if not chosen.is_printed(printed[task])}
        for rule, chosens in found.items()
    }
