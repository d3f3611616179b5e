"""Fixtures of Table 5's bench: every contender of a device on the clock, once per run, and the verdict on it."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from quarl_bench.errors import MissingBoard
from quarl_bench.plugin.progress import show_blocks
from quarl_bench.system.extras import needing

if TYPE_CHECKING:  # collection imports neither NumPy nor torch
    from quarl_bench.plugin.mixed_precision_verdicts import StepTimeRegression, StepTimeVerdict
    from quarl_bench.plugin.settings import Settings
    from quarl_bench.training.sb3.step_times import StepPlan, StepTimes
    from quarl_bench.views.rows import Row


@pytest.fixture(scope="session")
def quarl_step_times(
    quarl_settings: "Settings", quarl_run: str, pytestconfig: pytest.Config
) -> Callable[[str], "StepTimes"]:
    """Time a device's contenders; processes of one run share what the first of them measured."""

    def measure(device: str) -> "StepTimes":
        import json

        from filelock import FileLock

        from quarl_bench.system.atomic import write_file

        with needing("sb3", "training on the clock"):
            from quarl_bench.training.sb3.step_times import CONTENDERS, StepTimes, measure_step_times

        path = quarl_settings.cache / "step_times" / f"{quarl_run}-{device}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(path.parent / f"{device}.lock"):
            if not path.exists():
                plan = find_plan(quarl_settings.profile, device)
                total = plan.blocks * len(plan.sizes) * len(CONTENDERS[device])
                with show_blocks(pytestconfig, total, f"training steps on {device}") as progress:
                    write_file(path, json.dumps(measure_step_times(device, plan, progress).as_dict()))
            return StepTimes(**json.loads(path.read_text()))

    return measure


@pytest.fixture
def times(request: pytest.FixtureRequest, quarl_step_times: Callable[[str], "StepTimes"]) -> "StepTimes":
    """The times of the item's device; skips without a CUDA device where it needs one."""
    named = "case" if "case" in request.fixturenames else "claim"
    item = request.getfixturevalue(named)
    board = str(getattr(item, "case", item).board)
    if board:
        import torch

        if not torch.cuda.is_available():
            raise MissingBoard(board, "torch sees no CUDA device")
    return quarl_step_times(board or "cpu")


@pytest.fixture
def step_time_regression(request: pytest.FixtureRequest, quarl_settings: "Settings") -> "StepTimeRegression":
    """Did our own time move? Compares with the file of the same machine; `--force-regen` rewrites it."""
    with needing("claims", "step_time_regression"):
        from quarl_bench.plugin.mixed_precision_verdicts import StepTimeRegression

    return StepTimeRegression(request, quarl_settings.profile)


@pytest.fixture
def step_time_verdict(
    request: pytest.FixtureRequest, quarl_record: Callable[["Row"], None], quarl_settings: "Settings"
) -> "StepTimeVerdict":
    """Does the paper's sentence hold on this machine? Refuted fails, unless it is known on it."""
    from quarl_bench.plugin.mixed_precision_verdicts import StepTimeVerdict

    return StepTimeVerdict(request, quarl_record, strict=quarl_settings.strict)


def find_plan(profile: str, device: str) -> "StepPlan":
    """A profile's plan; in `quick` a glance at smaller networks, end to end left out."""
    from quarl_bench.training.sb3.step_times import DIVISORS, StepPlan

    if profile == "quick":
        return StepPlan(blocks=2, seconds=0.02, calls=2, steps=0, divisor=32)
    return StepPlan(divisor=DIVISORS[device])
