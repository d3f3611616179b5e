"""For the tests of other projects: `assert_quantizable(policy, env, scheme)`.

Imports nothing heavy until it is called: the plugin loads this module in every pytest run.
"""

from typing import TYPE_CHECKING, Any

from quarl_bench.errors import SpecError
from quarl_bench.judging.outcomes import RECORD, Undecided

if TYPE_CHECKING:
    from quarl_bench.experiments.store import Store
    from quarl_bench.spec import Verdict

EPISODES, MARGIN = 100, 0.05


def assert_quantizable(
    policy: Any,
    env: Any = None,
    scheme: str = "int8",
    margin: float = MARGIN,
    *,
    floor: float | None = None,
    episodes: int = EPISODES,
    store: "Store | None" = None,
    **named: Any,
) -> "Verdict":
    """Assert that `policy` under `scheme` keeps more than 1 - `margin` of its fp32 return; the verdict is returned.

    `policy` is a stable-baselines3 model, a torch module, a PolicyNet, or what `quarl check` takes: a path of a .zip or
    a folder, the name of a baseline, `hub:...`, `module:attribute`. `env` is an environment's name, a Gymnasium id,
    `module:Class` or a class of Gymnasium; None is the policy's own. Both play the same `episodes` environment seeds.
    `floor` is a return that counts as nothing, a random policy's for example, where returns lie around 0.
    `named` are `algo`, `normalization` and `arch` of `quarl_bench.experiments.policy_source.PolicySource`; `store`
    keeps what was measured.

    Raises ClaimRefuted when the interval of the ratio lies wholly below the threshold, Undecided when it contains it
    (both are AssertionErrors, and say what was found), QuarlError for what cannot be checked.
    """
    __tracebackhide__ = True  # pytest shows the line that called
    from quarl_bench.checking.answer import play_schemes
    from quarl_bench.checking.subject import name_policy, open_subject, read_scheme
    from quarl_bench.judging.modes import describe
    from quarl_bench.judging.outcomes import ClaimRefuted
    from quarl_bench.report.check_rows import build_check_row, name_check
    from quarl_bench.spec import Outcome

    try:
        subject = open_subject(policy, env, store=store, **named)
    except TypeError as error:
        raise SpecError(
            f"assert_quantizable takes algo, normalization and arch beside what it names ({error})"
        ) from error
    name = name_policy(policy)
    (line,) = play_schemes(subject, [read_scheme(scheme)], episodes, margin, floor)
    row = build_check_row(name, subject, line, margin)
    RECORD.get(_ignore)(row)
    message = f"{name_check(name, subject, line)}: {row['sentence']}: {describe(line.verdict)}"
    if line.verdict.outcome is Outcome.REFUTED:
        raise ClaimRefuted(message)
    if line.verdict.outcome is Outcome.INCONCLUSIVE:
        raise Undecided(message)
    return line.verdict


def _ignore(_: dict[str, Any]) -> None:
    """Nobody collects rows outside of pytest."""
