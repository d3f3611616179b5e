"""What is said before training that this processor does slowly."""

from collections.abc import Collection

from quarl_bench.cli.printing import say


def warn_of_emulation(precisions: Collection[str]) -> None:
    """Say once, where any of these precisions is bf16 and the processor emulates it, that training takes longer."""
    from quarl_bench.system.processor import lacks_bf16
    from quarl_bench.training.recipes import BF16

    if BF16 in precisions and lacks_bf16():
        say(
            "note: this processor has no bf16 instructions and emulates them, two to eleven times slower than fp32; "
            "--precision fp32 (of a grid: origin = 'fp32') trains another arm"
        )
