"""Names that a shell completes behind `quarl`, with the extra `terminal`.

In bash and zsh: `eval "$(register-python-argcomplete quarl)"`.
"""

import argparse
import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any

ASKED = "_ARGCOMPLETE"  # in the environment of a process whose only task is to complete
SCHEMES = ("fp32", "fp16", *(f"{kind}{bits}" for kind in ("w", "int", "qat") for bits in (8, 6, 4, 3, 2)))


def is_asked() -> bool:
    """Whether this process is to complete, and nothing else."""
    return ASKED in os.environ


def complete(parser: argparse.ArgumentParser) -> None:
    """Where a shell asks for it, print what may stand at the cursor, and end the process; else do nothing."""
    if not is_asked():
        return
    import argcomplete

    for action in _list_actions(parser):
        if action.dest in NAMES:
            action.completer = NAMES[action.dest]  # type: ignore[attr-defined]  # where argcomplete looks for it
    argcomplete.autocomplete(parser)


def _list_actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    for action in parser._actions:  # noqa: SLF001 (argparse has no other name for them)
        yield action
        if isinstance(action.choices, dict):  # commands
            for command in action.choices.values():
                yield from _list_actions(command)


def _list_environments(**_: Any) -> list[str]:
    from quarl_bench.environments.registry import list_environments

    return [name for one in list_environments() for name in (one.slug, one.id)]


def _list_backends(**_: Any) -> list[str]:
    from quarl_bench.backends.registry import BACKENDS

    return [name for one in BACKENDS.values() for name in (one.name, *one.aliases)]


NAMES: dict[str, Callable[..., Iterable[str]]] = {  # by what an argument is called
    "environment": _list_environments,
    "backend": _list_backends,
    "scheme": lambda **_: SCHEMES,
}
