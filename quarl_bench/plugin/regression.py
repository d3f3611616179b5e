"""The `metrics_regression` fixture: one CSV per case and profile beside the bench, one line per policy.

pytest-regressions compares whole numbers exactly, passes when a metric vanishes, and turns a missing file into a
failure; the subclass mends these three. Tolerances are not chosen: a mean may move by the stored standard error and,
on another processor, by what chance allows between two sets of distinct episodes. There a policy's products are rounded
differently: calibration meets other states, an integer differs, and bodies that collide make other episodes. Some names
stand for several processors, so that the column has their instructions as well.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest
from pytest_regressions.dataframe_regression import DataFrameRegressionFixture

from quarl_bench.errors import StoreError
from quarl_bench.evaluation.measurement_key import runtime_versions
from quarl_bench.plugin.state import DATADIRS, REGRESSION
from quarl_bench.quantization.scheme import Scheme
from quarl_bench.spec import Measurement
from quarl_bench.system.processor import describe_processor

if TYPE_CHECKING:
    from quarl_bench.judging.claim import JudgedCase

PROCESSOR = "processor"  # the column; files that lack it, or its instructions, count as another one's
CHANCE_ERRORS = 3  # standard errors of a difference that chance is allowed
# SD of the agreement of int8 over five calibrations on other states, measured: BipedalWalker 0.09 (A2C) and 0.04 (PPO),
# LunarLander 0.01. Continuous actions have to agree within 1% of their range.
CALIBRATION = 0.09
MISMATCHES = {"mismatch": "policies or episodes", "versions": "library versions"}
DIGITS = "%#.9g"  # always with a decimal point, so that 500.0 stays a float and is compared with its tolerance


class StoredNumbers(DataFrameRegressionFixture):
    """Compares a table with the one stored for the same case and profile, if that has the same identity."""

    def __init__(self, request: pytest.FixtureRequest, profile: str) -> None:
        datadir, original_datadir = map(request.getfixturevalue, DATADIRS)
        super().__init__(datadir, original_datadir, request)
        self._profile = profile
        self._identity: tuple[str, ...] = ()
        self._versions: tuple[str, ...] = ()
        self._elsewhere = False  # stored on another processor

    @property
    def _regenerates(self) -> bool:
        """Whether numbers are to be written again."""
        option = self.request.config.getoption
        return bool(option("force_regen") or option("regen_all"))

    def _compare(self, frame: pd.DataFrame, identity: Sequence[str], versions: Iterable[str] = ()) -> None:
        """Fail when a number moved; without failing note "no-baseline", or what other numbers the stored ones are.

        They are, where a column of `identity` differs, "mismatch", and where only one of `versions` does, "versions".
        """
        __tracebackhide__ = True
        judged: JudgedCase = self.request.getfixturevalue("case")
        self._identity, self._versions = tuple(identity), tuple(versions)
        basename = f"{judged.id}.{self._profile}"
        option = self.request.config.getoption
        stored = self.original_datadir / f"{basename}.csv"
        again = self._regenerates
        if not stored.exists() and not again:
            self._note_state("no-baseline")
            return
        if PROCESSOR in frame and stored.exists() and not again:
            before = _read_stored(stored)
            self._elsewhere = PROCESSOR not in before or list(before[PROCESSOR]) != list(frame[PROCESSOR])
            frame = frame.drop(columns=PROCESSOR) if self._elsewhere else frame
        self._note_state("moved")  # until the comparison says otherwise
        super().check(frame, basename=basename)
        if option("regen_all"):
            self._note_state("same")

    def _tolerances(self, obtained: pd.DataFrame, expected: pd.DataFrame) -> dict[str, Any]:
        """How far each column may be from `expected`; isclose takes one tolerance per line as well."""
        raise NotImplementedError

    def _note_state(self, state: str) -> None:
        self.request.node.stash[REGRESSION] = state

    def _dump_fn(self, data_object: Any, filename: Path) -> None:
        data_object.to_csv(str(filename), float_format=DIGITS, index=False)

    def _check_fn(self, obtained_filename: Path, expected_filename: Path) -> None:
        __tracebackhide__ = True
        obtained = pd.read_csv(obtained_filename)
        try:
            expected = _read_stored(expected_filename)
        except StoreError as error:
            if self.request.config.getoption("force_regen"):
                raise AssertionError(str(error)) from error
            raise
        vanished = [name for name in expected.columns if name not in obtained.columns and name != PROCESSOR]
        if vanished:
            raise AssertionError(f"metrics vanished: {vanished}\nTo update values, use --force-regen option.")
        other = ""
        if len(obtained) != len(expected) or self._differs(obtained, expected, self._identity):
            other = "mismatch"
        elif self._differs(obtained, expected, self._versions):
            other = "versions"
        if other and self.request.config.getoption("force_regen"):
            raise AssertionError(f"{expected_filename.name}: stored numbers are of other {MISMATCHES[other]}")
        if other:
            self._note_state(other)
            return
        lacking = [name for name in obtained.columns if name not in expected.columns and name != PROCESSOR]
        if lacking:
            raise AssertionError(
                f"{expected_filename.name} lacks {lacking}; to update values, use --force-regen option."
            )
        self._default_tolerance = {"rtol": 1e-6, "atol": 0.0}
        self._tolerances_dict = self._tolerances(obtained, expected)
        super()._check_fn(obtained_filename, expected_filename)
        self._note_state("same")

    @staticmethod
    def _differs(obtained: pd.DataFrame, expected: pd.DataFrame, columns: Iterable[str]) -> bool:
        return any(
            name not in expected or list(obtained[name].astype(str)) != list(expected[name].astype(str))
            for name in columns
        )


def _read_stored(path: Path) -> pd.DataFrame:
    """The table of a stored file; StoreError, in one line, where it is none."""
    try:
        return pd.read_csv(path)
    except ValueError as error:  # ParserError, EmptyDataError and UnicodeDecodeError are
        told = " ".join(str(error).split())
        raise StoreError(f"{path.name}: no table of numbers ({told}); restore it, or use --force-regen") from error


class MetricsRegression(StoredNumbers):
    """Compares a measurement with the one stored for the same case, profile, policies and library versions."""

    def check(self, measured: Measurement) -> None:  # type: ignore[override]
        """Fail when a number moved; note "no-baseline", "mismatch" (other policies) or "versions" (others) instead."""
        __tracebackhide__ = True
        judged: JudgedCase = self.request.getfixturevalue("case")
        versions = runtime_versions(judged.case)
        frame = pd.concat(
            [tabulate(mode, versions) for mode in (measured, measured.sampled) if mode is not None], ignore_index=True
        )
        self._compare(frame, ("policy", "actions", "episodes"), versions)

    def _tolerances(self, obtained: pd.DataFrame, expected: pd.DataFrame) -> dict[str, Any]:
        judged: JudgedCase = self.request.getfixturevalue("case")
        scheme = Scheme.parse(judged.case.scheme)
        calibrated = scheme.integer and scheme.calibrated
        return find_tolerances(obtained, expected, elsewhere=self._elsewhere, calibrated=calibrated)


def find_tolerances(
    obtained: pd.DataFrame, expected: pd.DataFrame, *, elsewhere: bool, calibrated: bool = False
) -> dict[str, Any]:
    """How far each column may be from the stored one, as `isclose` has it; `elsewhere` is on another processor."""
    error, other = (frame["return_se"].to_numpy(dtype=np.float64) for frame in (expected, obtained))
    allowed = CHANCE_ERRORS if elsewhere else 1
    if elsewhere:
        repeated = (expected["episodes"] / expected["distinct_episodes"]).to_numpy(dtype=np.float64)
        error = allowed * np.hypot(error, other) * np.sqrt(repeated)  # equal episodes tell nothing twice
    agreement = CHANCE_ERRORS * 2**0.5 * CALIBRATION if elsewhere and calibrated else 0.02 * allowed
    return {
        "return_mean": {"rtol": 1e-9, "atol": error},
        # A standard error, the mean length of an episode and the states in which agreement is counted move with the
        # mean; they are there to be read.
        "return_se": {"rtol": 1.0, "atol": error},
        "length_mean": {"rtol": 0.1 * allowed, "atol": 0.0},
        "agreement": {"rtol": 0.0, "atol": agreement},
    }


def tabulate(measured: Measurement, versions: dict[str, str]) -> pd.DataFrame:
    """One line per policy: identity, counts, mean return, its standard error over episodes, length, agreement."""
    returns, lengths = np.array(measured.returns), np.array(measured.lengths, dtype=np.float64)
    episodes = returns.shape[1]
    spread = returns.std(axis=1, ddof=1) if episodes > 1 else np.zeros(len(returns))
    columns: dict[str, Any] = {
        "policy": [name[:16] for name in measured.policies],
        "actions": ["argmax" if measured.deterministic else "sampled"] * len(returns),
        "episodes": [episodes] * len(returns),
        "distinct_episodes": [measured.distinct_episodes] * len(returns),
        "return_mean": returns.mean(axis=1),
        "return_se": spread / np.sqrt(episodes),
        "length_mean": lengths.mean(axis=1),
    }
    if measured.agreement is not None:
        columns["agreement"] = np.array(measured.agreement)
    columns[PROCESSOR] = [describe_processor()] * len(returns)
    return pd.DataFrame(columns | {name: [version] * len(returns) for name, version in versions.items()})
