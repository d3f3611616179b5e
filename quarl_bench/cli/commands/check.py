"""`quarl check`: may this policy be shipped in fewer bits, and what will it cost?"""

import argparse
import itertools
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quarl_bench.cli.arguments import add_task, new_command
from quarl_bench.cli.opening import open_task, use_one_thread
from quarl_bench.cli.printing import collect, format_table, print_result, say
from quarl_bench.system.atomic import check_replaceable, open_file, open_folder
from quarl_bench.system.counts import read_episodes
from quarl_bench.system.extras import needing
from quarl_bench.system.places import default_cache

if TYPE_CHECKING:
    from quarl_bench.checking.answer import Answer, ArtefactCost, SchemeResult, Subject

CODES = {"supported": 0, "refuted": 1, "inconclusive": 3}
COLUMNS = ("scheme", "return", "against fp32", "keeps", "interval", "same action", "verdict")
COSTS = ("artefact", "bytes", "us (p50)", "us (p90)")
EXIT_CODES = (
    "exit codes: 0 the scheme of --scheme is supported, 1 it is refuted, 3 not decided, 2 wrong input (one line on "
    "stderr), 130 interrupted"
)


def add_command(commands: Any) -> None:
    """Add `quarl check`: a policy, its environment, and how much of the return a scheme may lose."""
    command = new_command(commands, "check", run,
        "Find out what fewer bits cost a policy: returns, bytes, microseconds; and what to ship.",
        "quarl check CartPole-v1.zip --normalization none --export shipped", EXIT_CODES)  # fmt: skip
    add_task(command)
    command.add_argument(
        "--scheme", help="what the exit code is about. Default: int8, or w8 of nets that have no form in integers."
    )
    command.add_argument("--margin", type=float, default=0.05, help="of the return that may be lost. Default: 0.05.")
    command.add_argument(
        "--floor", type=float, metavar="RETURN",
        help="a return that counts as nothing, as a random policy's; --floor=-1e3. Default: shares are of the return.",
    )  # fmt: skip
    command.add_argument("--episodes", type=read_episodes, default=100, help="environment seeds. Default: 100.")
    command.add_argument("--html", type=Path, metavar="FILE", help="also write a page. Default: none.")
    command.add_argument(
        "--export", type=Path, metavar="DIR",
        help="also write the artefacts of --scheme and of the fewest bits that do, with golden pairs, one folder per "
        "backend. Default: none.",
    )  # fmt: skip


def run(options: argparse.Namespace) -> int:
    """Play every scheme, judge each against fp32, price the artefacts and print what to ship; return the exit code."""
    from quarl_bench.checking import answer as check
    from quarl_bench.errors import SpecError
    from quarl_bench.experiments.store import Store, StorePaths
    from quarl_bench.quantization.scheme import Scheme

    use_one_thread()
    asked = Scheme.parse(check.INT8 if options.scheme is None else options.scheme)
    if asked.name == "fp32":
        raise SpecError("--scheme fp32: what other schemes are held against; name one of them")
    stored, environment = open_task(options)
    subject = check.Subject(stored, environment, Store(StorePaths(default_cache()), note=say))
    refused = subject.find_refused([*map(Scheme.parse, check.SCHEMES)])
    if options.scheme is None and asked.name in refused:
        asked = Scheme.parse(check.WEIGHTS)
        say(f"{check.INT8}: {refused[check.INT8]}; the exit code is about {asked.name}")
    subject.quantize(asked)  # what cannot be done says so before others are played
    names = [*check.SCHEMES] if asked.name in check.SCHEMES else [asked.name, *check.SCHEMES]
    names = [name for name in names if name not in refused]
    if options.export is not None:
        _open_export(options.export, names)
    if options.html is not None:
        open_file(options.html)
    played = check.play_schemes(subject, [*map(Scheme.parse, names)], options.episodes, options.margin, options.floor)
    lines = collect(played, len(names), "scheme", lambda line: line.scheme.name)
    chosen = check.choose_schemes(lines, asked.name)
    found = check.Answer(
        stored=stored,
        environment=environment,
        reference=lines[0].reference,
        lines=tuple(lines),
        layers=check.measure_layers(subject),
        costs=tuple(check.benchmark_artefacts(subject, [*dict.fromkeys(("fp32", *chosen))])),
        margin=options.margin,
        floor=options.floor,
        refused=refused,
    )
    result = describe_check(found, options.policy.name, asked.name)
    if options.html is not None:
        from quarl_bench.report.documents import Document

        with needing("report", "--html"):
            from quarl_bench.report.page.html import write_report

        write_report(options.html, [Document(options.policy.name, result)])
    exported = [line for name in chosen for line in _export(subject, name, options.export)] if options.export else []
    print_result(options, result | {"exported": exported}, "\n".join([*print_check(found), *exported]))
    return CODES[str(found.find(asked.name).verdict.outcome)]


def describe_check(found: "Answer", name: str, asked: str) -> dict[str, Any]:
    """All that `quarl check --json` prints, as one object; `quarl report` reads it back."""
    from quarl_bench.checking.answer import CONFIDENCE, LAYER_BITS, find_fewest, recommend

    fewest = find_fewest(found.lines)
    return {
        "kind": "check",
        "policy": name,
        "policy_sha256": found.stored.sha256,
        "environment": found.environment.id,
        "episodes": len(found.reference.environment_seeds),
        "distinct_episodes": found.reference.distinct_episodes,
        "source": str(found.reference.source),
        "margin": found.margin,
        "floor": found.floor,
        "confidence": CONFIDENCE,
        "scheme": asked,
        "fewest": None if fewest is None else fewest.scheme.name,
        "verdict": str(found.find(asked).verdict.outcome),
        "return": found.reference.mean,
        "rows": [describe_line(line) for line in found.lines],
        "refused": dict(found.refused),
        "layer_bits": LAYER_BITS,
        "layers": [asdict(layer) for layer in found.layers],
        "costs": [asdict(cost) for cost in found.costs],
        "recommendation": recommend(found),
    }


def print_check(found: "Answer") -> list[str]:
    """The lines that `quarl check` prints: the fp32 return, a line per scheme, costs, and what to ship."""
    from quarl_bench.checking.answer import CONFIDENCE, LAYER_BITS, find_fewest, recommend
    from quarl_bench.cli.printing import describe_returns
    from quarl_bench.evaluation.sensitivity import describe_sensitivity

    needs = [f"  {line.scheme.name}: {line.verdict.needed}" for line in found.lines if line.verdict.needed]
    missing = [f"  {reason}" for reason in found.refused.values()]
    missing += [f"  {cost.backend} {cost.scheme}: {cost.reason}" for cost in found.costs if cost.reason]
    fewest = find_fewest(found.lines)
    best = "none" if fewest is None else fewest.scheme.name
    episodes, returns = len(found.reference.environment_seeds), describe_returns(found.reference.returns[0])
    return [
        f"{found.environment.id}, {episodes} episodes each, deterministic, measured on this machine",
        f"fp32 returns {returns}; a scheme is to keep {found.share}, on the same environment seeds",
        *format_table([COLUMNS, *map(format_line, found.lines)]),
        f"fewest bits that keep {found.share} at {CONFIDENCE:.0%} confidence: {best}",
        *(["what would decide:", *needs] if needs else []),
        "which layers are touchy:",
        *(f"  {describe_sensitivity(layer, LAYER_BITS)}" for layer in found.layers),
        "what it costs: bytes (of c: of its source), and one call from Python, quantization of its input included;",
        "of small nets that is Python's own time (`make test` of an exported c artefact times the code alone):",
        *format_table([COSTS, *(_format_cost(cost) for cost in found.costs if not cost.reason)]),
        *(["not there:", *missing] if missing else []),
        recommend(found),
    ]


def _open_export(folder: Path, schemes: list[str]) -> None:
    """Make `folder`; StoreError before anything is played where an artefact of one of `schemes` would have no place."""
    from quarl_bench.backends.artefact import GOLDEN
    from quarl_bench.checking.answer import list_backends

    for scheme, backend in itertools.product(schemes, list_backends()):
        check_replaceable(_name_export(folder, scheme, backend), GOLDEN)
    open_folder(folder)


def _name_export(folder: Path, scheme: str, backend: str) -> Path:
    return folder / f"{scheme}-{backend}"


def _export(subject: "Subject", scheme: str, folder: Path) -> Any:
    from quarl_bench.checking.answer import export, list_backends
    from quarl_bench.errors import DeploymentError, MissingExtra

    for backend in list_backends():
        target = _name_export(folder, scheme, backend)
        try:
            deployed = export(subject, scheme, backend, target)
        except (DeploymentError, MissingExtra) as error:
            yield f"not exported: {error}"
            continue
        yield f"exported {target} with {len(deployed.artefact.golden.actions)} golden pairs"


def describe_line(line: "SchemeResult") -> dict[str, Any]:
    """One scheme's result, in JSON types."""
    verdict = line.verdict
    return {
        "scheme": line.scheme.name,
        "family": str(line.scheme.family),
        "bits": line.scheme.widest,
        "return": line.measured.mean,
        "difference": line.difference,
        "difference_interval": None if line.interval is None else list(line.interval),
        "ratio": verdict.estimate,
        "ratio_low": verdict.low,
        "ratio_high": verdict.high,
        "agreement": line.agreement,
        "verdict": str(verdict.outcome),
        "needed": verdict.needed,
        "caveats": list(verdict.caveats),
    }


def format_line(line: "SchemeResult") -> tuple[str, ...]:
    """One scheme's result as cells of the table under `COLUMNS`."""
    verdict = line.verdict
    interval = "none" if verdict.low is None else f"[{verdict.low:.1%}, {verdict.high:.1%}]"
    keeps = "none" if verdict.estimate is None else f"{verdict.estimate:.1%}"
    returns, apart = f"{line.measured.mean:.4g}", f"{line.difference:+.4g}"
    return line.scheme.name, returns, apart, keeps, interval, f"{line.agreement:.2%}", str(verdict.outcome)


def _format_cost(cost: "ArtefactCost") -> tuple[str, ...]:
    return f"{cost.backend} {cost.scheme}", f"{cost.bytes:,}", f"{cost.median:.1f}", f"{cost.p90:.1f}"
