"""For the tests of other projects: `assert_quantizable(policy, env, scheme)`.

Imports nothing heavy until it is called: the plugin loads this module in every pytest run.
"""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from quarl_bench.errors import SpecError
from quarl_bench.evaluation.profiles import EPISODES
from quarl_bench.judging.outcomes import MARGIN, RECORD, STRICT, Undecided

if TYPE_CHECKING:
    from quarl_bench.checking.subject import Subject
    from quarl_bench.experiments.store import Store
    from quarl_bench.quantization.scheme import Scheme
    from quarl_bench.spec import Verdict
    from quarl_bench.views.rows import Row


def assert_quantizable(
    policy: Any,
    env: Any = None,
    scheme: "Scheme | str" = "int8",
    margin: float = MARGIN,
    *,
    floor: float | None = None,
    episodes: int = EPISODES,
    strict: bool | None = None,
    store: "Store | None" = None,
    name: str | None = None,
    **named: Any,
) -> "Verdict":
    """Assert that a policy under a scheme keeps more than 1 - `margin` of its fp32 return.

    Both play the same environment seeds. Where fp32 does not beat random actions, keeping its return proves nothing.
    The verdict is then undecidable.

    Args:
        policy: A model of stable-baselines3, a torch module, a `Policy`, or what `quarl check` takes: a path of a .zip
            or a folder, the name of a baseline, `hub:...`, `module:attribute`.
        env: Where it plays, as `check` takes it. The default is the policy's own.
        scheme: Its name, as `int8`.
        margin: Share of the return that may be lost, above 0 and below 1.
        floor: A return that counts as nothing, as a random policy's, where returns lie around 0. The default is none:
            shares are of the return itself.
        episodes: Environment seeds. The fixture's default is that of `--quarl-episodes`.
        strict: Whether an undecided verdict fails. The default is what `quarl_strict` of pytest's ini file says, else
            True; `--quarl-strict` on the command line always fails. With False it is returned.
        store: Keeps what was measured. The default is the user's cache.
        name: What ids and sentences call the policy. The default is its file's name, or the class of a live one.
        named: `env_kwargs`, `algo`, `normalization`, `arch`, as `load_policy` takes them.

    Returns:
        The verdict: `outcome`, `estimate` with `low` and `high`, `needed`, `caveats`.

    Raises:
        ClaimRefuted: The interval of the ratio lies wholly below the threshold. An AssertionError.
        Undecided: The interval contains the threshold, or fp32 does not beat random actions. An AssertionError, which
            says what would decide.
        QuarlError: Something that cannot be checked.
    """
    __tracebackhide__ = True  # pytest shows the line that called
    from quarl_bench.checking.answer import play_schemes
    from quarl_bench.checking.random_play import find_doubt, weigh_doubt
    from quarl_bench.checking.subject import name_policy
    from quarl_bench.judging.modes import describe
    from quarl_bench.judging.outcomes import ClaimRefuted
    from quarl_bench.quantization.scheme import read_scheme
    from quarl_bench.report.rows.checks import build_check_row
    from quarl_bench.spec import Outcome

    subject, name = _open(policy, env, store, named), name or name_policy(policy)
    (line,) = play_schemes(subject, [read_scheme(scheme)], episodes, margin, floor)
    random = subject.play_randomly(line.reference.environment_seeds)
    doubt = find_doubt(line.reference, random)
    line = replace(line, verdict=weigh_doubt(line.verdict, doubt))
    row = build_check_row(name, subject, line, margin)
    RECORD.get(_ignore)(row)
    message = f"{row.id}: {row.sentence}: {describe(line.verdict)}"
    message += f"; {doubt}" if doubt else ""
    if line.verdict.outcome is Outcome.REFUTED:
        raise ClaimRefuted(message)
    if line.verdict.outcome.open and STRICT.get(_is_strict)(strict):
        raise Undecided(message)
    return line.verdict


def _open(policy: Any, env: Any, store: "Store | None", named: dict[str, Any]) -> "Subject":
    from quarl_bench.checking.subject import open_subject

    try:
        return open_subject(policy, env, store=store, **named)
    except TypeError as error:
        raise SpecError(
            f"assert_quantizable takes env_kwargs, algo, normalization and arch beside what it names ({error})"
        ) from error


def _is_strict(strict: bool | None) -> bool:
    """Outside of pytest nothing but the caller opens the gate."""
    return strict is not False


def _ignore(_: "Row") -> None:
    """Nobody collects rows outside of pytest."""
