"""Fixtures of a bench: cheap function-scoped views on one session-scoped store."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from quarl_bench.plugin.progress import is_watched
from quarl_bench.plugin.state import NOTE, get_settings
from quarl_bench.system.extras import needing

if TYPE_CHECKING:  # torch is imported by the first test that asks for a policy, never by collection
    from quarl_bench.experiments.cells import Cells, PolicySet
    from quarl_bench.experiments.store import Store
    from quarl_bench.judging.claim import JudgedCase, JudgedClaim
    from quarl_bench.judging.evidence import Evidence
    from quarl_bench.plugin.regression import MetricsRegression
    from quarl_bench.plugin.settings import Settings
    from quarl_bench.plugin.verdict import VerdictCheck
    from quarl_bench.spec import Measurement
    from quarl_bench.views.rows import Row


@pytest.fixture(scope="session")
def quarl_settings(pytestconfig: pytest.Config) -> "Settings":
    """The options of this run, checked once and the same in every worker."""
    return get_settings(pytestconfig)


@pytest.fixture(scope="session")
def quarl_notes() -> list[str]:
    """What the store trained or repaired since the last test ended."""
    return []


@pytest.fixture(scope="session")
def quarl_run(pytestconfig: pytest.Config) -> str:
    """One name for all processes of this run."""
    import uuid

    worker = getattr(pytestconfig, "workerinput", None)
    return str(worker["testrunuid"]) if worker else uuid.uuid4().hex


@pytest.fixture(scope="session")
def policy_store(
    pytestconfig: pytest.Config, quarl_settings: "Settings", quarl_run: str, quarl_notes: list[str]
) -> "Store":
    """Trained policies and measurements of this run."""
    import torch

    from quarl_bench.experiments.store import Store, StorePaths, Train

    torch.set_num_threads(1)  # one process per core, one thread per process

    def train(spec: Any, recipe: Any, folder: Any, checkpoint: Any) -> Any:
        with needing("sb3", "training"):
            from quarl_bench.training.sb3.run import TrainingOptions
            from quarl_bench.training.schemes import train_policy

        # An interrupted run of the same recipe and code goes on from its checkpoint.
        return train_policy(
            spec, recipe, folder, checkpoint, TrainingOptions(resume=True, progress=is_watched(pytestconfig))
        )

    return Store(
        StorePaths(quarl_settings.cache, quarl_settings.baselines, quarl_settings.zoo),
        Train(quarl_settings.train),
        trainer=train,
        run=quarl_run,
        note=quarl_notes.append,
    )


@pytest.fixture(scope="session")
def quarl_cells(policy_store: "Store", quarl_settings: "Settings", tmp_path_factory: pytest.TempPathFactory) -> "Cells":
    """Measures cells with this run's numbers of policies, episodes and games; artefacts go to a temporary folder."""
    from quarl_bench.evaluation.protocol import Protocol
    from quarl_bench.experiments.cells import Cells

    protocol = Protocol.of(quarl_settings.policies, quarl_settings.played)
    return Cells(policy_store, protocol, tmp_path_factory.mktemp("artefacts"))


@pytest.fixture
def policy(case: "JudgedCase", quarl_cells: "Cells", _pass_on_notes: None) -> "PolicySet":
    """The fp32 policies of the case's cell; skips when they would have to be trained and may not."""
    return quarl_cells.find_policies(case.case)


@pytest.fixture
def quantized_policy(case: "JudgedCase", policy: "PolicySet", quarl_cells: "Cells") -> "PolicySet":
    """The cell's policies under the case's scheme, as integers for `int<bits>`."""
    return quarl_cells.quantize(policy, case.case.scheme)


@pytest.fixture
def deployed_policy(case: "JudgedCase", quantized_policy: "PolicySet", quarl_cells: "Cells") -> "PolicySet":
    """The cell's policies as artefacts that a runtime executes; golden pairs have been re-run."""
    return quarl_cells.deploy(quantized_policy, case.case.board)


@pytest.fixture
def evaluate(quarl_cells: "Cells", _pass_on_notes: None) -> Callable[["PolicySet"], "Measurement"]:
    """Measure a set of policies: returns per policy and episode, on the seeds that all schemes share."""
    return quarl_cells.measure


@pytest.fixture
def cells(claim: "JudgedClaim", quarl_cells: "Cells", _pass_on_notes: None) -> "Evidence":
    """Every cell of a claim item, from the store or measured now; cells without policies are listed as missing."""
    return claim.claim.judgement.collect(quarl_cells, claim)


@pytest.fixture
def quarl_record(request: pytest.FixtureRequest, _pass_on_notes: None) -> Callable[["Row | dict[str, Any]"], None]:
    """Record this item's row; NumPy values become built-in types."""
    from quarl_bench.plugin.recorder import record_row

    return partial(record_row, request.node)


@pytest.fixture
def metrics_regression(request: pytest.FixtureRequest, quarl_settings: "Settings") -> "MetricsRegression":
    """Did our own number move? Compares with the file beside the bench; `--force-regen` rewrites it."""
    with needing("claims", "metrics_regression"):
        from quarl_bench.plugin.regression import MetricsRegression

    return MetricsRegression(request, quarl_settings.profile)


@pytest.fixture
def verdict(
    request: pytest.FixtureRequest,
    quarl_record: Callable[["Row | dict[str, Any]"], None],
    quarl_settings: "Settings",
) -> "VerdictCheck":
    """Does the paper's sentence hold? Records the row and raises ClaimRefuted when it does not."""
    from quarl_bench.plugin.verdict import VerdictCheck

    return VerdictCheck(request, quarl_record, strict=quarl_settings.strict)


@pytest.fixture
def _pass_on_notes(request: pytest.FixtureRequest, quarl_notes: list[str]) -> Iterator[None]:
    yield
    request.node.user_properties.extend((NOTE, note) for note in quarl_notes)
    quarl_notes.clear()
