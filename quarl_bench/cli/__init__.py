"""`quarl`: the same machinery for people who are not running a test. Results go to stdout, progress to stderr.

One module per command, imported where it is named; each imports what is heavy only when it runs, so that `--help` and
usage errors cost nothing.
"""

import argparse
import atexit
import contextlib
import errno
import importlib
import io
import os
import re
import sys
import warnings
from collections.abc import Container, Iterator, Sequence
from select import POLLERR, POLLHUP, poll
from typing import Any, NoReturn

from quarl_bench.cli.commands import COMMANDS
from quarl_bench.cli.completion import complete, is_asked
from quarl_bench.cli.outputs import keep_inputs
from quarl_bench.cli.stopping import STOPPED
from quarl_bench.errors import QuarlError
from quarl_bench.system.interruption import Interrupted
from quarl_bench.version import __version__

CUT = 130  # the exit code of ctrl-C
NEAR = 0.7  # how alike an option that is meant and what was typed are, by difflib's ratio
NEGATIVE = re.compile(r"-(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?$")  # what begins with a minus and is no option
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # a disk, a share of one, or a file as large as is allowed


class Parser(argparse.ArgumentParser):
    """One line for wrong arguments, as for all wrong input."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._negative_number_matcher = NEGATIVE

    def refuse(self, unknown: Sequence[str]) -> NoReturn:
        """Exit code 2, with the option that may have been meant."""
        import difflib  # a misspelling is rare

        near = difflib.get_close_matches(unknown[0].partition("=")[0], self._option_string_actions, 1, NEAR)
        self.error(f"unrecognized arguments: {' '.join(unknown)}{f'; did you mean {near[0]}?' if near else ''}")

    def error(self, message: str) -> NoReturn:
        """Exit code 2; the list of options is a page, and asked for by name."""
        self.exit(2, f"{self.prog}: {_suggest(message)}; {self.prog} --help lists what there is\n")


def _suggest(message: str) -> str:
    """The message with what may have been meant, where a choice is misspelt."""
    import difflib

    found = re.search(r"invalid choice: '([^']*)' \(choose from (.*)\)", message)
    near = difflib.get_close_matches(found[1], re.findall(r"[\w-]+", found[2]), 1) if found else []
    return f"{message}; did you mean {near[0]!r}?" if near else message


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit code is returned."""
    given = sys.argv[1:] if arguments is None else arguments
    parser = _build_parser(COMMANDS if is_asked() else given)
    complete(parser)
    options, unknown = parser.parse_known_args(arguments)
    if unknown:
        getattr(options, "parser", parser).refuse(unknown)
    if options.command is None:
        parser.print_help()
        return 0
    options.stdout = sys.stdout
    try:
        # Environments and policies of other people print what they like, which is no part of a result.
        with contextlib.redirect_stdout(sys.stderr), _tell_in_one_line():
            keep_inputs(options)
            code = int(options.run(options))
        sys.stdout.flush()  # here, where a closed pipe is understood, not when the interpreter ends
    except QuarlError as error:
        print(f"quarl {options.command}: {error}", file=sys.stderr)
        return 2
    except Interrupted as reason:
        print(reason, file=sys.stderr)
        return STOPPED
    except KeyboardInterrupt:
        return CUT
    except (Exception, SystemExit) as error:  # noqa: BLE001 (0 and 1 are verdicts, of check for one)
        if isinstance(error, BrokenPipeError) and _is_unread():
            return 0
        if isinstance(error, OSError) and error.errno in FULL:
            _tell_full(options.command, error)
            return 2
        import traceback

        traceback.print_exc()
        print(f"quarl {options.command}: an error in an environment or policy of yours, or in quarl", file=sys.stderr)
        return 2
    return code


def run_process() -> int:
    """`main` as a process of its own, which ends at once: to take apart what torch has set up takes 0.4 s."""
    _mend_streams()
    codes: list[int] = []
    atexit.register(_leave, codes)  # registered first, called last
    try:
        codes.append(main())
    except KeyboardInterrupt:  # while the command itself is imported
        codes.append(CUT)
    return codes[0]


def _mend_streams() -> None:
    """A stream that was closed swallows what it is told, and no file takes its number; stdout writes every name."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: PTH123, SIM115 (to the end of the process)
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")  # as stderr


def _tell_full(command: str, error: OSError) -> None:
    place = f" ({error.filename})" if error.filename else ""
    advice = "make room where output goes, in the cache (QUARL_CACHE_DIR) and for temporary files (TMPDIR)"
    print(f"quarl {command}: {error.strerror}{place}; {advice}", file=sys.stderr)


def _leave(codes: Sequence[int]) -> None:
    """Leave all memory to the system; without a code, be it of `--help` or of an error, the process ends as usual.

    So it does where success cannot be told; a failure that cannot be told stays one.
    """
    for code in codes:
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        except (OSError, ValueError):
            if not code:
                return
        os._exit(code)


@contextlib.contextmanager
def _tell_in_one_line() -> Iterator[None]:
    """An entry point that does not load is one line on stderr, whatever is made of other warnings."""
    from quarl_bench.system.registry import EntryPointWarning

    with warnings.catch_warnings():
        warnings.simplefilter("default", EntryPointWarning)
        show = warnings.showwarning

        def tell(message: Warning | str, category: type[Warning], *rest: Any, **named: Any) -> None:
            if issubclass(category, EntryPointWarning):
                print(f"note: {message}", file=sys.stderr)
            else:
                show(message, category, *rest, **named)

        warnings.showwarning = tell
        yield


def _is_unread() -> bool:
    """Whether it is our own pipe that broke: whoever read stdout has seen enough. What is left of it is dropped."""
    asked = poll()
    try:
        asked.register(sys.stdout.fileno(), 0)
    except (OSError, ValueError):  # no file at all
        return False
    unread = any(event & (POLLERR | POLLHUP) for _, event in asked.poll(0))
    if unread:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return unread


def _build_parser(named: Container[str] = COMMANDS) -> Parser:
    """The parser with whole commands where `named` has them, and lines of help for the others."""
    description = "Train, quantize, evaluate, deploy policies, and report on them."
    parser = Parser(prog="quarl", description=description)
    parser.add_argument("--version", action="version", version=f"quarl {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    for name, command in COMMANDS.items():
        if name in named:
            importlib.import_module(f"quarl_bench.cli.commands.{command.module}").add_command(commands)
        else:
            commands.add_parser(name, help=command.help)
    return parser
