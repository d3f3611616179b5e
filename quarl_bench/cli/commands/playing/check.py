"""`quarl check`: may this policy be shipped in fewer bits, and what will it cost?"""

import argparse
import itertools
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quarl_bench.cli.arguments import add_task, name_command, new_command, read_path
from quarl_bench.cli.opening import open_task, use_one_thread
from quarl_bench.cli.printing import print_result, say
from quarl_bench.evaluation.profiles import EPISODES
from quarl_bench.judging.outcomes import MARGIN
from quarl_bench.system.atomic import PAGES, check_replaceable, open_file, open_folder
from quarl_bench.system.bars import open_bar, open_note, step
from quarl_bench.system.counts import read_episodes
from quarl_bench.system.extras import expect, needing
from quarl_bench.system.places import default_cache

if TYPE_CHECKING:
    from quarl_bench.checking.answer import SchemeResult, Selection
    from quarl_bench.checking.costs import ArtefactBuilder
    from quarl_bench.checking.subject import Subject

REPAIRABLE = {f"int{bits}" for bits in range(2, 9)}
CODES = {"supported": 0, "refuted": 1, "inconclusive": 3, "undecidable": 3}
EXIT_CODES = (
    "exit codes: 0 the scheme of --scheme is supported, 1 it is refuted, 3 not decided, or fp32 does not beat random "
    "play, 2 wrong input (one line on stderr), 130 interrupted"
)


def add_command(commands: Any) -> None:
    """Add `quarl check`: a policy, its environment, and how much of the return a scheme may lose."""
    command = new_command(commands, "check", run,
        "quarl check CartPole-v1.zip --export shipped", EXIT_CODES)  # fmt: skip
    add_task(command)
    command.add_argument(
        "--scheme", help="scheme that the exit code is about. Default: int8, or w8 for nets that have no integer form."
    )
    command.add_argument(
        "--margin", type=float, default=MARGIN, help=f"share of the return that may be lost. Default: {MARGIN}."
    )
    command.add_argument(
        "--floor", type=float, metavar="RETURN",
        help="return that counts as 0%%, for example a random policy's, as --floor=-1e3. Default: a return of 0.",
    )  # fmt: skip
    command.add_argument(
        "--episodes",
        type=read_episodes,
        default=EPISODES,
        help=f"episodes per scheme, each from an environment seed of its own. Default: {EPISODES}.",
    )
    command.add_argument(
        "--html", type=read_path, metavar="FILE", help="also write the answer as an HTML page. Default: none."
    )
    command.add_argument(
        "--export", type=read_path, metavar="DIR",
        help="also write the artefacts of --scheme and of the fewest bits that do, with golden pairs, one folder per "
        "backend. Default: none.",
    )  # fmt: skip

    command.add_argument(
        "--repair", type=read_path, metavar="DIR",
        help="if an int<n> scheme is refuted, search for a form that is not, and write it there; the exit code is then "
        "about that form. Default: none.",
    )  # fmt: skip


def run(options: argparse.Namespace) -> int:
    """Play every scheme, judge each against fp32, price the artefacts and print what to ship; return the exit code."""
    with open_note(f"checking {options.policy}, {options.episodes} episodes of each scheme"):
        use_one_thread("quarl_bench.checking.answer")
    from quarl_bench.checking import answer as check
    from quarl_bench.checking.costs import open_builder
    from quarl_bench.checking.recommendation import choose_schemes
    from quarl_bench.checking.subject import Subject
    from quarl_bench.experiments.store import Store, StorePaths
    from quarl_bench.policies.storage.fp32 import INTEGERS, WEIGHTS
    from quarl_bench.quantization.net import refuse_branches
    from quarl_bench.quantization.scheme import Scheme

    if options.scheme is not None:
        Scheme.parse(options.scheme)  # a misspelling says so before a file is read
    stored, environment = open_task(options)
    if "assumed" in stored.metadata:
        say(f"{options.policy}: assumed to be {stored.metadata['assumed']}")
    if options.repair is not None:
        refuse_branches(stored.policy.net, "quarl repair")
        check_replaceable(options.repair, WEIGHTS, INTEGERS)
    if options.html is not None:
        expect("report", "--html", "jinja2", "matplotlib")
        open_file(options.html, *PAGES)
    subject = Subject(stored, environment, Store(StorePaths(default_cache()), note=say), shown=None)
    selection = check.select_schemes(subject, options.scheme)
    if selection.note:
        say(selection.note)
    if options.export is not None:
        _open_export(options.export, selection.names)
    name = options.policy.name
    with open_builder(subject) as builder:
        lines = _play(subject, selection, options, builder)
        with open_bar(len(check.PARTS), "part") as bar:
            tell = partial(step, bar)
            found = check.build_answer(subject, name, selection, lines, options.margin, options.floor, tell, builder)
    result = found.as_dict()
    if options.html is not None:
        _write_page(options.html, found.name, result)
    exported: list[str] = []
    if options.export is not None:
        chosen = choose_schemes(lines, found.asked)
        exported = [line for name in chosen for line in _export(subject, name, options.export)]
    told, outcome = [str(found), *exported], str(found.outcome)
    if outcome == "refuted" and found.asked in REPAIRABLE and not stored.policy.net.branches:
        repair = _repair(subject, options, found.asked)
        result |= {"repair": repair[0]}
        told += repair[1]
        outcome = repair[2] or outcome
    print_result(options, result | {"exported": exported}, "\n".join(told))
    return CODES[outcome]


def _play(
    subject: "Subject", selection: "Selection", options: argparse.Namespace, builder: "ArtefactBuilder"
) -> "list[SchemeResult]":
    """Play every scheme; what is priced whatever comes out is built while the last ones are played."""
    from quarl_bench.checking.answer import RANDOM
    from quarl_bench.checking.cores import collect_lines
    from quarl_bench.evaluation.protocol import list_test_seeds
    from quarl_bench.experiments.member import FP32
    from quarl_bench.quantization.scheme import Scheme

    schemes = [*map(Scheme.parse, selection.names)]
    beside = [(RANDOM, partial(subject.play_randomly, list_test_seeds(options.episodes)))]
    build = partial(builder.build, (FP32, selection.asked))
    return collect_lines(subject, schemes, options.episodes, "scheme", options.margin, options.floor, beside, build)


def _repair(subject: "Subject", options: argparse.Namespace, scheme: str) -> tuple[dict[str, Any], list[str], str]:
    """What a repair of a refuted `scheme` would try, or, where one is asked for, what it found.

    In JSON types, in lines, and as the outcome of its test, which is empty where none was asked for.
    """
    from quarl_bench.cli.commands.quantizing.repair import repair_with_progress, write_repaired
    from quarl_bench.quantization.scheme import Scheme
    from quarl_bench.repairing.ladder import list_remedies
    from quarl_bench.repairing.plan import Plan

    policy = subject.stored.policy
    if options.repair is None:
        words = [remedy.words for remedy in list_remedies(policy) if not remedy.reason]
        command = name_command("repair", options, scheme)
        line = f"{scheme} is refuted; `{command}` would try: {', '.join(words)}, corrected biases, distillation"
        return {"command": command, "would_try": words}, [line], ""
    plan = Plan(Scheme.parse(scheme), options.margin, options.floor, options.episodes)
    found = repair_with_progress(subject, plan)
    written, line = write_repaired(options.repair, subject, found)
    return found.as_dict() | {"written": written}, [str(found), line], str(found.test.verdict.outcome)


def _write_page(file: Path, name: str, result: dict[str, Any]) -> None:
    from quarl_bench.report.documents import Document

    with needing("report", "--html"):
        from quarl_bench.report.page.html import write_report

    write_report(file, [Document(name, result)], shown=None)


def _open_export(folder: Path, schemes: Sequence[str]) -> None:
    """Make `folder`; StoreError before anything is played where an artefact of one of `schemes` would have no place."""
    from quarl_bench.backends.files import GOLDEN
    from quarl_bench.checking.costs import list_backends

    for scheme, backend in itertools.product(schemes, list_backends()):
        check_replaceable(_name_export(folder, scheme, backend), GOLDEN)
    open_folder(folder)


def _name_export(folder: Path, scheme: str, backend: str) -> Path:
    return folder / f"{scheme}-{backend}"


def _export(subject: "Subject", scheme: str, folder: Path) -> Iterator[str]:
    from quarl_bench.checking.costs import list_backends
    from quarl_bench.errors import DeploymentError, MissingExtra

    for backend in list_backends():
        target = _name_export(folder, scheme, backend)
        try:
            deployed = subject.export(scheme, backend, target)
        except (DeploymentError, MissingExtra) as error:
            yield f"not exported: {error}"
            continue
        yield f"exported {target} with {len(deployed.artefact.golden.actions)} golden pairs"
