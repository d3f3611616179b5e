"""A quantization scheme and its name, which is also an id part: `fp32`, `w8`, `w8floor`, `int8`, `int4pc`, ...

Grammar: `fp32`, `fp16`, `w<2..32><options>`, `int<2..8><options>`, `qat<2..8>`, and LQCC's
`i<2..8>c<2..8>o<2..8>[h<1..4096>][wide]` or `i<2..8>c<2..8>o<2..8>[wide]ptq`: bits of input, core (weights and inner
activations) and output, a hidden width that is not the recipe's, `wide` for equation (1)'s weights, which use the
lowest integer (its authors' code does not: two-bit weights are ternary), and `ptq` for the same quantizer on a finished
fp32 policy of whatever width. Options, each at most once, in any order:

    sym            symmetric ranges: of the weights for w<n> (default affine), of the activations for int<n>
    narrow, wide   weights leave out, or use, the lowest integer (default: wide for w<n>, narrow for int<n>)
    pt, pc         weight scales per_tensor or per_channel everywhere (default: pt for Linear, pc for Conv2d)
    ema, mse       activation ranges by moving average, or of least mean squared error (default: extremes)
    pct<dd..>      activation ranges by percentile, 50 and up: pct999 = 99.9
    uncal          activation ranges from unit-normal inputs, never from rollouts
    pow2           every scale is a power of two (activations and weights of int<n>)
    floor          round down (w<n>: QuaRL's formula as printed); default: to nearest, ties to even
    eq             every input is divided by its own range first, which the first layer takes back (int<n>)
    cle            cross-layer equalization: the weights on both sides of a ReLU get equal ranges, neuron by neuron
    hba            high-bias absorption: what a neuron behind a ReLU never falls below goes into the next layer's bias
                   (int<n>)
    acc            wide outputs: the last layer returns its 32-bit sums, on one scale, so that close ones do not tie
                   (int<n>)
    w<bbb>         bits of every layer's weights, first to last, a digit of 2..8 each; activations have <n> (int<n>):
                   int8w848
    repaired       what `quarl repair` chose for this policy, where it is kept beside the baselines; else int<n>

Standard library only: the plugin parses names at collection.
"""

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Self

from quarl_bench.errors import SpecError


class Family(StrEnum):
    """Which numbers of a net a scheme quantizes, and when; the value is how its name starts."""

    FP32 = "fp32"  # nothing
    FP16 = "fp16"  # weights and biases, IEEE 754 binary16
    WEIGHT_ONLY = "w"  # weights, uniform affine; QuaRL's post-training quantization
    INTEGER = "int"  # weights and activations, integer from end to end
    AWARE = "qat"  # the same, trained with the quantizer in place
    LEARNED = "i"  # the same with learned scales, and bits of its own for input, core and output (LQCC)


class Rounding(StrEnum):
    """How a real number becomes an integer."""

    NEAREST = "nearest"  # ties to even
    FLOOR = "floor"


class Granularity(StrEnum):
    """How many scales a weight tensor has."""

    PER_TENSOR = "per_tensor"
    PER_CHANNEL = "per_channel"


class ObserverKind(StrEnum):
    """How a range is read off calibration activations."""

    MIN_MAX = "min_max"
    MOVING_AVERAGE = "moving_average"
    PERCENTILE = "percentile"
    MEAN_SQUARE = "mean_square"


BITS = {
    Family.WEIGHT_ONLY: range(2, 33),
    Family.INTEGER: range(2, 9),
    Family.AWARE: range(2, 9),
    Family.LEARNED: range(2, 9),
}
OBSERVERS = {"ema": ObserverKind.MOVING_AVERAGE, "mse": ObserverKind.MEAN_SQUARE}  # by option
# pct stands before pc, which is its beginning
OPTION = re.compile(
    r"sym|narrow|wide|pt|pct[5-9][0-9]{1,5}|pc|ema|mse|uncal|pow2|floor|eq|cle|hba|acc|repaired|w[2-8]+(?![0-9])"
)
MIXED = re.compile(r"w[2-8]+")
NAME = re.compile(rf"(w|int|qat)([1-9][0-9]?)((?:{OPTION.pattern})*)")
PARTS = re.compile(r"i([0-9]+)c([0-9]+)o([0-9]+)(?:h([0-9]+))?(wide)?(ptq)?")
WIDTHS = range(1, 4097)
KNOWN = (
    "fp32, fp16, w2..w32, int2..int8 (options: sym narrow wide pt pc ema mse pct<dd> uncal pow2 floor eq cle hba acc "
    "w<digits>), qat2..qat8, i<bits>c<bits>o<bits> (options: h<width> wide, or wide ptq)"
)


@dataclass(frozen=True)
class Scheme:
    """Everything that decides how numbers are quantized; build it with `Scheme.parse`."""

    family: Family
    bit_width: int = 32
    symmetric: bool = False
    narrow_range: bool = False
    granularity: Granularity | None = None  # None: per_tensor for Linear, per_channel for Conv2d
    observer: ObserverKind = ObserverKind.MIN_MAX
    percentile: float = 100.0
    calibrated: bool = True
    power_of_two: bool = False
    rounding: Rounding = Rounding.NEAREST
    equalized_inputs: bool = False
    equalized_layers: bool = False
    absorbed_biases: bool = False
    wide_outputs: bool = False
    repaired: bool = False  # found for a policy by its repair, not applied
    layer_bits: tuple[int, ...] = ()  # of the weights, layer by layer; empty: `bit_width` everywhere
    input_bits: int = 0  # of LEARNED, whose `bit_width` is the core's
    output_bits: int = 0
    width: int = 0  # of its hidden layers; 0: the recipe's
    after: bool = False  # applied after training

    @classmethod
    def parse(cls, name: str) -> Self:
        """The scheme called `name`; SpecError with the known names when there is none."""
        if name == Family.FP32:
            return cls(Family.FP32)
        if name == Family.FP16:
            return cls(Family.FP16, 16)
        if parts := PARTS.fullmatch(name):
            return cls._parse_parts(name, *parts.groups())
        match = NAME.fullmatch(name)
        if match is None:
            raise SpecError(f"unknown scheme {name!r}; {_suggest(name)}known are {KNOWN}")
        family, bits = Family(match[1]), int(match[2])
        if bits not in BITS[family]:
            allowed = BITS[family]
            raise SpecError(f"scheme {name!r}: {family}<bits> takes {allowed[0]}..{allowed[-1]} bits, not {bits}")
        options = OPTION.findall(match[3])
        if family is Family.AWARE:
            if options:
                raise SpecError(f"scheme {name!r}: qat<bits> takes no options; it is trained as it is deployed")
            return cls(family, bits, narrow_range=True)
        _refuse_conflicts(name, family, options)
        percentiles = [o[3:] for o in options if o.startswith("pct")]
        mixed = next((tuple(map(int, o[1:])) for o in options if MIXED.fullmatch(o)), ())
        return cls(
            family=family,
            bit_width=bits,
            symmetric="sym" in options,
            narrow_range="narrow" in options or (family is Family.INTEGER and "wide" not in options),
            granularity=_pick(options, {"pt": Granularity.PER_TENSOR, "pc": Granularity.PER_CHANNEL}),
            observer=ObserverKind.PERCENTILE
            if percentiles
            else next((kind for o, kind in OBSERVERS.items() if o in options), ObserverKind.MIN_MAX),
            percentile=float(f"{percentiles[0][:2]}.{percentiles[0][2:] or 0}") if percentiles else 100.0,
            calibrated="uncal" not in options,
            power_of_two="pow2" in options,
            rounding=Rounding.FLOOR if "floor" in options else Rounding.NEAREST,
            equalized_inputs="eq" in options,
            equalized_layers="cle" in options,
            absorbed_biases="hba" in options,
            wide_outputs="acc" in options,
            repaired="repaired" in options,
            layer_bits=mixed,
        )

    @classmethod
    def _parse_parts(cls, name: str, *parts: str | None) -> Self:
        bits, (width, wide, after) = [int(part or 0) for part in parts[:3]], parts[3:]
        for part, count in zip(("input", "core", "output"), bits, strict=True):
            if count not in BITS[Family.LEARNED]:
                raise SpecError(f"scheme {name!r}: the {part} takes 2..8 bits, not {count}")
        if width is not None and int(width) not in WIDTHS:
            raise SpecError(f"scheme {name!r}: a hidden width is {WIDTHS[0]}..{WIDTHS[-1]}, not {width}")
        if width is not None and after:
            raise SpecError(f"scheme {name!r}: ptq takes the policy's own width; leave out h{width}")
        return cls(
            Family.LEARNED,
            bits[1],
            narrow_range=wide is None,
            input_bits=bits[0],
            output_bits=bits[2],
            width=int(width or 0),
            after=after is not None,
        )

    @property
    def name(self) -> str:
        """The canonical name: options in the order of the grammar, defaults left out."""
        if self.family in (Family.FP32, Family.FP16):
            return str(self.family)
        if self.family is Family.LEARNED:
            width = f"h{self.width}" if self.width else ""
            wide = "" if self.narrow_range else "wide"
            after = "ptq" if self.after else ""
            return f"i{self.input_bits}c{self.bit_width}o{self.output_bits}{width}{wide}{after}"
        if self.trained:
            return f"{self.family}{self.bit_width}"
        weight_only = self.family is Family.WEIGHT_ONLY
        width = {(True, True): "narrow", (False, False): "wide"}.get((self.narrow_range, weight_only), "")
        names = {ObserverKind.MIN_MAX: "", **{kind: option for option, kind in OBSERVERS.items()}}
        observer = names.get(self.observer, "pct" + f"{self.percentile:.10g}".replace(".", ""))
        options = (
            "sym" if self.symmetric else "",
            width,
            {None: "", Granularity.PER_TENSOR: "pt", Granularity.PER_CHANNEL: "pc"}[self.granularity],
            observer,
            "" if self.calibrated else "uncal",
            "pow2" if self.power_of_two else "",
            "floor" if self.rounding is Rounding.FLOOR else "",
            "eq" if self.equalized_inputs else "",
            "cle" if self.equalized_layers else "",
            "hba" if self.absorbed_biases else "",
            "acc" if self.wide_outputs else "",
            "repaired" if self.repaired else "",
            "w" + "".join(map(str, self.layer_bits)) if self.layer_bits else "",
        )
        return f"{self.family}{self.bit_width}{''.join(options)}"

    @property
    def widest(self) -> int:
        """The largest of the scheme's bit widths: of input, core and output."""
        return max(self.bit_width, self.input_bits, self.output_bits)

    @property
    def integer(self) -> bool:
        """True when activations are quantized too, so that an IntegerPolicy exists."""
        return self.family in (Family.INTEGER, Family.AWARE, Family.LEARNED)

    @property
    def trained(self) -> bool:
        """True when the policy is trained with the quantizer; such a scheme cannot be applied afterwards."""
        return self.family in (Family.AWARE, Family.LEARNED) and not self.after

    def bits_of(self, layer: int) -> int:
        """The bits of the weights of one layer, counted from 0."""
        return self.layer_bits[layer] if self.layer_bits else self.bit_width

    def granularity_of(self, convolution: bool) -> Granularity:
        """Per_tensor for Linear and per_channel for Conv2d (QuaRL, section 3) unless the name says otherwise."""
        return self.granularity or (Granularity.PER_CHANNEL if convolution else Granularity.PER_TENSOR)


def read_scheme(scheme: Scheme | str) -> Scheme:
    """The scheme that a caller names or holds; SpecError with the known names when there is none."""
    return Scheme.parse(scheme) if isinstance(scheme, str) else scheme


def _suggest(name: str) -> str:
    """A plain scheme that may have been meant."""
    import difflib  # a misspelling is rare

    plain = [str(Family.FP32), str(Family.FP16)]
    plain += [f"{family}{bits}" for family, widths in BITS.items() if family is not Family.LEARNED for bits in widths]
    near = difflib.get_close_matches(name.lower().replace("_", "").replace("-", ""), plain, 1)
    return f"did you mean {near[0]!r}? " if near else ""


def _pick(options: list[str], meaning: dict[str, Granularity]) -> Granularity | None:
    return next((meaning[o] for o in options if o in meaning), None)


def _refuse_conflicts(name: str, family: Family, options: list[str]) -> None:
    kinds = ["w" if MIXED.fullmatch(o) else o[:3] if o.startswith("pct") else o for o in options]
    for group in (("narrow", "wide"), ("pt", "pc"), ("ema", "mse", "pct")):
        if sum(kind in group for kind in kinds) > 1:
            raise SpecError(f"scheme {name!r}: at most one of {', '.join(group[:-1])} and {group[-1]}")
    if len(set(kinds)) != len(kinds):
        raise SpecError(f"scheme {name!r}: an option is given twice")
    activation_options = {"ema", "mse", "pct", "uncal", "pow2", "eq", "hba", "acc", "repaired", "w"} & set(kinds)
    if family is Family.WEIGHT_ONLY and activation_options:
        raise SpecError(f"scheme {name!r}: {min(activation_options)} needs quantized activations (int<bits>)")
    if family is Family.WEIGHT_ONLY and "narrow" in kinds and "sym" not in kinds:
        raise SpecError(f"scheme {name!r}: narrow needs sym; an affine range uses all integers")
    if "uncal" in kinds and (ruled := {"eq", "hba"} & set(kinds)):
        raise SpecError(f"scheme {name!r}: {min(ruled)} takes ranges from rollouts, which uncal leaves out")
    if "repaired" in kinds and len(kinds) > 1:
        raise SpecError(f"scheme {name!r}: repaired stands alone; the repair has chosen the options")
    if family is Family.INTEGER and "floor" in kinds:
        raise SpecError(f"scheme {name!r}: integer kernels round to nearest; floor exists for w<bits> only")
