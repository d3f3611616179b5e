"""Scheme names: what parses, what it means, and how everything else is refused."""

from itertools import product

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from quarl_bench.errors import SpecError
from quarl_bench.quantization.scheme import Family, Granularity, ObserverKind, Rounding, Scheme
from tests.support.sizes import draw_examples

GRANULARITIES = ("", "pt", "pc")
WEIGHT_ONLY = [
    f"w{bits}{''.join(options)}"
    for bits, *options in product(range(2, 33), ("", "sym", "symnarrow"), GRANULARITIES, ("", "floor"))
]
OF_FORM = ("eq", "cle", "hba", "acc", "eqcle", "eqclehbaacc", "pcpct999cleacc", "w8", "w842", "pcaccw22")
INTEGER = [
    f"int{bits}{''.join(options)}"
    for bits, *options in product(
        range(2, 9),
        ("", "sym"),
        ("", "wide"),
        GRANULARITIES,
        ("", "ema", "mse", "pct50", "pct99", "pct999", "pct99999"),
        ("", "uncal"),
        ("", "pow2"),
    )
] + [f"int{bits}{option}" for bits in (2, 8) for option in OF_FORM]
AWARE = [f"qat{bits}" for bits in range(2, 9)]
TOKENS = [
    "qat",
    "w",
    "int",
    "fp",
    "fp32",
    "8",
    "2",
    "32",
    "sym",
    "narrow",
    "wide",
    "pt",
    "pc",
    "ema",
    "pct",
    "pct99",
    "99",
]
TOKENS += ["hba", "w84", "w2", ".", "qat", "uncal", "pow2", "floor", " ", "-"]


@pytest.mark.parametrize(
    "names", [["fp32", "fp16"], WEIGHT_ONLY, INTEGER, AWARE], ids=["float", "weight_only", "integer", "aware"]
)
def test_every_canonical_name_is_the_name_of_its_scheme(names: list[str]) -> None:
    schemes = [Scheme.parse(name) for name in names]
    assert [scheme.name for scheme in schemes] == names
    assert len(set(schemes)) == len(names)


@given(st.sampled_from([["sym", "narrow", "pc", "floor"], ["sym", "wide", "pt", "pct999", "uncal", "pow2"]]), st.data())
def test_options_stand_in_any_order(options: list[str], data: st.DataObject) -> None:
    family = "w8" if "floor" in options else "int8"
    shuffled = data.draw(st.permutations(options))
    assert Scheme.parse(family + "".join(shuffled)).name == family + "".join(options)


@pytest.mark.parametrize(
    "name, canonical",
    [("w8wide", "w8"), ("w8widesym", "w8sym"), ("int8narrow", "int8"), ("int8pct990", "int8pct99")],
)
def test_defaults_are_left_out_of_the_name(name: str, canonical: str) -> None:
    assert Scheme.parse(name).name == canonical
    assert Scheme.parse(name) == Scheme.parse(canonical)


@pytest.mark.parametrize(
    "name, scheme",
    [
        ("fp32", Scheme(Family.FP32)),
        ("fp16", Scheme(Family.FP16, 16)),
        ("w8", Scheme(Family.WEIGHT_ONLY, 8)),
        ("w3floor", Scheme(Family.WEIGHT_ONLY, 3, rounding=Rounding.FLOOR)),
        ("w4symnarrowpc", Scheme(Family.WEIGHT_ONLY, 4, True, True, Granularity.PER_CHANNEL)),
        ("int8", Scheme(Family.INTEGER, 8, narrow_range=True)),
        ("int5symwidept", Scheme(Family.INTEGER, 5, True, False, Granularity.PER_TENSOR)),
        ("int8ema", Scheme(Family.INTEGER, 8, narrow_range=True, observer=ObserverKind.MOVING_AVERAGE)),
        (
            "int8pct999",
            Scheme(Family.INTEGER, 8, narrow_range=True, observer=ObserverKind.PERCENTILE, percentile=99.9),
        ),
        ("int8uncalpow2", Scheme(Family.INTEGER, 8, narrow_range=True, calibrated=False, power_of_two=True)),
    ],
)
def test_a_name_means(name: str, scheme: Scheme) -> None:
    assert Scheme.parse(name) == scheme
    assert scheme.integer is (scheme.family is Family.INTEGER)
    assert not scheme.trained


def test_a_trained_scheme_is_integer_and_takes_no_options() -> None:
    scheme = Scheme.parse("qat4")
    assert (scheme.integer, scheme.trained, scheme.bit_width) == (True, True, 4)
    with pytest.raises(SpecError, match="takes no options"):
        Scheme.parse("qat4sym")
    with pytest.raises(SpecError, match=r"2\.\.8 bits, not 9"):
        Scheme.parse("qat9")


@pytest.mark.parametrize("convolution", [False, True])
def test_granularity_follows_the_layer_unless_the_name_says_otherwise(convolution: bool) -> None:
    default = Granularity.PER_CHANNEL if convolution else Granularity.PER_TENSOR
    assert Scheme.parse("w8").granularity_of(convolution) is default
    assert Scheme.parse("w8pt").granularity_of(convolution) is Granularity.PER_TENSOR
    assert Scheme.parse("w8pc").granularity_of(convolution) is Granularity.PER_CHANNEL


KNOWN = r"known are fp32, fp16, w2\.\.w32, int2\.\.int8"


@pytest.mark.parametrize(
    "name, said",
    [
        *((name, KNOWN) for name in ("", "w8a", "int", "w", "8", "W8", " w8", "w8 ", "w8\n", "fp8", "fp32sym", "i8")),
        *((name, KNOWN) for name in ("w08", "w\u0668", "w" + "9" * 5000, "int8pct", "int8pct9", "int8pct00")),
        *((name, KNOWN) for name in ("int8pct05", "int8pct100", "int8pct9999999", "w-8", "int8pct\u0669\u0669")),
        *((name, r"int<bits> takes 2\.\.8 bits") for name in ("int1", "int9", "int32")),
        *((name, r"w<bits> takes 2\.\.32 bits") for name in ("w1", "w33", "w99")),
        ("int8floor", "floor exists for w<bits> only"),
        ("w8narrow", "narrow needs sym"),
        *((f"w8{option}", "needs quantized activations") for option in ("ema", "pct99", "uncal", "pow2")),
        ("int8narrowwide", "at most one of narrow and wide"),
        ("w8ptpc", "at most one of pt and pc"),
        ("int8emapct99", "at most one of ema, mse and pct"),
        ("int8pct99pct999", "at most one of ema, mse and pct"),
        ("int8pcpc", "at most one of pt and pc"),
        *((f"int8{option * 2}", "twice") for option in ("sym", "uncal", "pow2")),
        ("w8floorfloor", "twice"),
    ],
    ids=lambda text: ascii(text[:24]),
)
def test_refused(name: str, said: str) -> None:
    with pytest.raises(SpecError, match=said) as caught:
        Scheme.parse(name)
    assert "\n" not in str(caught.value)


@draw_examples(1000)
@given(st.text() | st.lists(st.sampled_from(TOKENS), max_size=7).map("".join))
@example("int8pctpc")
def test_any_text_is_a_scheme_with_a_name_or_a_spec_error(text: str) -> None:
    said = "one line"
    try:
        scheme = Scheme.parse(text)
    except SpecError as error:
        said = str(error)
    else:
        assert Scheme.parse(scheme.name) == scheme
    assert len(said.splitlines()) == 1
