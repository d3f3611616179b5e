"""What the options of one run say, in built-in types, so that workers get them."""

import argparse
import contextlib
import importlib.metadata
import itertools
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from quarl_bench.errors import QuarlError
from quarl_bench.evaluation.profiles import PROFILES, Profile, choose_profile
from quarl_bench.plugin.options import TRAIN
from quarl_bench.system.atomic import PAGES, RESULTS, open_file, open_folder
from quarl_bench.system.counts import read_episodes
from quarl_bench.system.extras import expect
from quarl_bench.system.places import default_cache

POLICIES = 3  # training seeds per cell
CONFIG_FILES = ("pytest.toml", "pytest.ini", "pyproject.toml", "tox.ini", "setup.cfg")
PATH_OPTIONS = (
    "--quarl-cache-dir",
    "--quarl-baselines",
    "--quarl-zoo",
    "--quarl-boards",
    "--quarl-json",
    "--quarl-html",
    "--quarl-compare",
)
COUNTS = ("episodes", "games", "cheap")  # of a profile
NAME_SIMILARITY = 0.8  # how alike two names are that are taken for one, by difflib's ratio


@dataclass(frozen=True)
class Settings:
    """The options of one run after their checks, with the profile's values where none was given."""

    profile: str
    train: str
    played: Profile  # of one policy of a user's `cheap` episodes
    policies: int
    cache: Path
    baselines: Path | None
    elsewhere: bool  # baselines that are not the committed ones
    zoo: Path | None
    boards: Path | None
    claims: tuple[str, ...]
    json: Path | None
    html: Path | None
    compare: Path | None
    shard: tuple[int, int] | None
    strict: bool  # undecided claims fail, and so does every undecided `assert_quantizable`
    lenient: bool  # an undecided `assert_quantizable` that says nothing itself does not fail
    require: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """What changes numbers, for the results file."""
        counts = {name: getattr(self.played, name) for name in COUNTS}
        return {
            "profile": self.profile,
            "train": self.train,
            **counts,
            "policies": self.policies,
            "strict": self.strict,
        }


def read_settings(config: pytest.Config) -> Settings:
    """The settings of this run; pytest.UsageError, in one line, for values that cannot work."""
    _refuse_misread_paths(config)
    profile = _choose(config, "profile") or "quick"
    train = _choose(config, "train") or ("missing" if profile == "paper" else "never")
    for name, value, known in (("profile", profile, PROFILES), ("train", train, TRAIN)):
        if value not in known:
            raise pytest.UsageError(f"quarl_{name} {value!r} is not one of {', '.join(known)}")
    episodes = _choose(config, "episodes")
    try:
        played = choose_profile(profile, None if episodes is None else read_episodes(str(episodes)))
    except argparse.ArgumentTypeError as error:
        raise pytest.UsageError(f"quarl_episodes: {error}") from error
    named = _choose_place(config, "baselines")
    if named and not (Path(named) / "policies").is_dir():
        what = "no policies/ in it" if Path(named).is_dir() else "no such folder"
        raise pytest.UsageError(f"--quarl-baselines {named}: {what}; name one with policies/<policy>/")
    committed = config.rootpath / "baselines"
    baselines = Path(named or committed).absolute()
    boards = _find_boards(config)
    return Settings(
        profile=profile,
        train=train,
        played=played,
        policies=POLICIES,
        cache=_find_cache(config),
        # The paper profile trains everything itself, at the recipe's full budget.
        baselines=baselines if baselines.is_dir() and profile != "paper" else None,
        elsewhere=profile == "paper" or baselines.resolve() != committed.resolve(),
        zoo=_find_zoo(config),
        boards=boards,
        claims=tuple(config.getoption("quarl_claims") or ()),
        json=_choose_file(config, "json", RESULTS),
        html=_find_page(config),
        compare=_find_results(config),
        shard=config.getoption("quarl_shard"),
        strict=bool(config.getoption("quarl_strict") or config.getini("quarl_strict")),
        lenient=config.getini("quarl_strict") is False and not config.getoption("quarl_strict"),
        require=_find_required(config, boards),
    )


def list_extras() -> tuple[str, ...]:
    """What `--quarl-require` may name besides boards."""
    return ("baselines", *(importlib.metadata.metadata("quarl_bench").get_all("Provides-Extra") or ()))


def _refuse_misread_paths(config: pytest.Config) -> None:
    """`--option PATH` with a blank: pytest looks for its rootdir before it knows plugins' options, and may go there.

    It goes where something is: also where nothing is yet, in the processes of xdist and in the next run.
    """
    here = config.invocation_params.dir
    configured = any((folder / name).exists() for folder in (here, *here.parents) for name in CONFIG_FILES)
    if config.getoption("inifilename") or not configured:
        return
    written = [str(argument) for argument in config.invocation_params.args]
    for option, path in itertools.pairwise(written):
        place = Path(here, path)
        if config.inipath is None:
            taken = config.rootpath in (place, *place.parents)
        else:
            taken = not place.exists() and config.inipath.parent not in place.parents
        if option in PATH_OPTIONS and taken:
            raise pytest.UsageError(f"pytest takes {path} for its rootdir; write {option}={path}, with an equals sign")


@contextlib.contextmanager
def _as_usage_error(option: str = "") -> Iterator[None]:
    """What a user can mend ends pytest before it collects, in one line."""
    try:
        yield
    except QuarlError as error:
        raise pytest.UsageError(f"{option}{error}") from error


def _choose(config: pytest.Config, name: str) -> Any:
    """The command line's value, else the ini file's, else None."""
    dest = f"quarl_{name}"
    value = config.getoption(dest)
    return config.getini(dest) or None if value is None else value


def _choose_place(config: pytest.Config, name: str, variable: str = "") -> str | None:
    """A path: the command line's, the ini file's, which begins there, or that of an environment variable."""
    value = config.getoption(f"quarl_{name}")
    if value is not None:
        return str(value)
    configured = config.getini(f"quarl_{name}")
    if configured:
        return str((config.inipath or config.rootpath / "pytest.ini").parent / configured)
    return os.environ.get(variable) or None


def _choose_file(config: pytest.Config, name: str, *endings: str) -> Path | None:
    """A file to write when the run ends; its folder must be there and writable now, not after an hour of work.

    A file of another kind, and what `--quarl-compare` reads, is left alone.
    """
    chosen = config.getoption(f"quarl_{name}")
    if chosen is None:
        return None
    path = Path(chosen).absolute()
    if not path.parent.is_dir():
        raise pytest.UsageError(f"--quarl-{name} {chosen}: the folder {path.parent} does not exist; make it")
    compared = config.getoption("quarl_compare")
    if compared is not None and path.resolve() == Path(compared).resolve():
        raise pytest.UsageError(f"--quarl-{name} {chosen}: --quarl-compare reads it; choose another name")
    with _as_usage_error(f"--quarl-{name}: "):
        return open_file(path, *endings)


def _find_zoo(config: pytest.Config) -> Path | None:
    """The zoo's folder; one that was named must be there."""
    chosen = _choose_place(config, "zoo", "QUARL_ZOO")
    if chosen is None:
        return None
    if not Path(chosen).is_dir() or not any(Path(chosen).glob("*/*/*.zip")):
        what = "no agents in it" if Path(chosen).is_dir() else "no such folder"
        raise pytest.UsageError(f"--quarl-zoo {chosen}: {what}; name one with <algo>/<Environment>_1/*.zip")
    return Path(chosen).absolute()


def _find_boards(config: pytest.Config) -> Path | None:
    """The board file; one that was named must be there and make sense now."""
    chosen = _choose_place(config, "boards", "QUARL_BOARDS")
    if chosen is None:
        return None
    from quarl_bench.boards.board import read_boards

    with _as_usage_error():
        read_boards(Path(chosen))
    return Path(chosen).absolute()


def _find_required(config: pytest.Config, boards: Path | None) -> tuple[str, ...]:
    """What must not be missing; beside a board file, a name that is neither an extra nor a board is misspelt.

    Without one any name may be a board's, but for those that are nearly an extra's.
    """
    names, extras = tuple(config.getoption("quarl_require") or ()), list_extras()
    if boards is None:
        import difflib  # a misspelling is rare, and the plugin starts with every run of pytest

        for name in names:
            near = [] if name in extras else difflib.get_close_matches(name, extras, 1, NAME_SIMILARITY)
            if near:
                raise pytest.UsageError(f"--quarl-require {name}: no extra; did you mean {near[0]}?")
        return names
    from quarl_bench.boards.board import read_boards

    known = (*extras, *read_boards(boards))
    for name in names:
        if name not in known:
            raise pytest.UsageError(f"--quarl-require {name}: no extra and no board; known are {', '.join(known)}")
    return names


def _find_page(config: pytest.Config) -> Path | None:
    """The page of this run; what draws it has to be there now, not after an hour of work."""
    chosen = _choose_file(config, "html", *PAGES)
    if chosen is not None and chosen == _choose_file(config, "json"):
        raise pytest.UsageError(f"--quarl-html {chosen}: --quarl-json has this name; choose another")
    if chosen is not None:
        with _as_usage_error():
            expect("report", "--quarl-html", "jinja2", "matplotlib")
    return chosen


def _find_results(config: pytest.Config) -> Path | None:
    """The results file of the last run; one that was named must be one."""
    chosen = config.getoption("quarl_compare")
    if chosen is None:
        return None
    from quarl_bench.report.documents import read_results

    with _as_usage_error("--quarl-compare: "):
        read_results(Path(chosen))
    return Path(chosen).absolute()


def _find_cache(config: pytest.Config) -> Path:
    """The cache folder; one that was named must be usable now, not after an hour of work."""
    chosen = _choose_place(config, "cache_dir")
    if chosen is None:
        return default_cache()
    with _as_usage_error("--quarl-cache-dir: "):
        return open_folder(Path(chosen).absolute())
