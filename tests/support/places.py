"""Where things are in a checkout, and beside it."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
POLICIES = ROOT / "baselines" / "policies"
SHARED = ROOT.parent / "shared"  # data that is no part of the repository; tests that use it skip where it is absent
