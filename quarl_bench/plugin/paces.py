"""Fixtures of Table 5's bench: every contender of a device on the clock, once per run, and the verdict on it."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from quarl_bench.errors import MissingBoard
from quarl_bench.extras import needing
from quarl_bench.plugin.progress import show_blocks
from quarl_bench.plugin.state import DATADIRS

if TYPE_CHECKING:  # collection imports neither NumPy nor torch
    from quarl_bench.plugin.pacing import PaceRegression, PaceVerdict
    from quarl_bench.plugin.settings import Settings
    from quarl_bench.rl.pace import Paces, Plan


@pytest.fixture(scope="session")
def quarl_paces(quarl_settings: "Settings", quarl_run: str, pytestconfig: pytest.Config) -> Callable[[str], "Paces"]:
    """Time a device's contenders; processes of one run share what the first of them measured."""

    def measure(device: str) -> "Paces":
        import json

        from filelock import FileLock

        from quarl_bench.atomic import write_file

        with needing("sb3", "training on the clock"):
            from quarl_bench.rl.pace import CONTENDERS, Paces, measure_paces

        path = quarl_settings.cache / "paces" / f"{quarl_run}-{device}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(path.parent / f"{device}.lock"):
            if not path.exists():
                plan = find_plan(quarl_settings.profile, device)
                total = plan.blocks * len(plan.sizes) * len(CONTENDERS[device])
                with show_blocks(pytestconfig, total, f"Table 5 on {device}") as progress:
                    write_file(path, json.dumps(measure_paces(device, plan, progress).as_dict()))
            return Paces(**json.loads(path.read_text()))

    return measure


@pytest.fixture
def paces(request: pytest.FixtureRequest, quarl_paces: Callable[[str], "Paces"]) -> "Paces":
    """The times of the item's device; skips without a CUDA device where it needs one."""
    named = "case" if "case" in request.fixturenames else "claim"
    item = request.getfixturevalue(named)
    board = str(getattr(item, "case", item).board)
    if board:
        import torch

        if not torch.cuda.is_available():
            raise MissingBoard(board, "torch sees no CUDA device")
    return quarl_paces(board or "cpu")


@pytest.fixture
def pace_regression(request: pytest.FixtureRequest, quarl_settings: "Settings") -> "PaceRegression":
    """Did our own time move? Compares with the file of the same machine; `--force-regen` rewrites it."""
    with needing("claims", "pace_regression"):
        from quarl_bench.plugin.pacing import PaceRegression

    lazy, original = map(request.getfixturevalue, DATADIRS)
    return PaceRegression(lazy, original, request, quarl_settings.profile)


@pytest.fixture
def pace_verdict(
    request: pytest.FixtureRequest, quarl_record: Callable[[dict[str, Any]], None], quarl_settings: "Settings"
) -> "PaceVerdict":
    """Does the paper's sentence hold on this machine? A ratio on the wrong side is an explained outcome, no failure."""
    from quarl_bench.plugin.pacing import PaceVerdict

    return PaceVerdict(request, quarl_record, strict=quarl_settings.strict)


def find_plan(profile: str, device: str) -> "Plan":
    """A profile's plan; in `smoke` a glance at smaller networks, end to end left out."""
    from quarl_bench.rl.pace import DIVISORS, Plan

    if profile == "smoke":
        return Plan(blocks=2, seconds=0.02, calls=2, steps=0, divisor=32)
    return Plan(divisor=DIVISORS[device])
