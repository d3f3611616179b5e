"""Agents of the Hugging Face hub, called `hub:OWNER/REPOSITORY[/FILE.zip][@REVISION]`.

Of a repository only the agent's zip is downloaded, and what says how it was trained. It goes into the cache of
`huggingface_hub`, which alone answers where the hub does not, and is read as any stranger's zip: nothing is unpickled.
"""

import contextlib
import logging
import re
import shutil
import sys
import tempfile
import warnings
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from quarl_bench.errors import PolicyError, QuarlError, SpecError, StoreError
from quarl_bench.experiments.zoo_agents import read_agent
from quarl_bench.policies.observation import Normalization
from quarl_bench.policies.sources.sb3.vecnormalize import FROM_FOLDER, STATISTICS
from quarl_bench.policies.sources.sb3.zip import LIMIT
from quarl_bench.policies.sources.sb3.zoo_config import ARGS, CONFIG
from quarl_bench.policies.storage.fp32 import StoredPolicy
from quarl_bench.system.atomic import new_folder
from quarl_bench.system.extras import needing

ADDRESS = re.compile(r"hub:([\w.-]+/[\w.-]+)(?:/([^@\n]+\.zip))?(?:@([\w./-]+))?", re.ASCII)
COMPANIONS = {
    CONFIG: CONFIG,
    ARGS: ARGS,
    "vec_normalize.pkl": STATISTICS,
    STATISTICS: STATISTICS,
}  # the hub's name: ours
METRICS = "train_eval_metrics.zip"  # the one zip that is no agent where rl-baselines3-zoo has pushed
TIMEOUT = 10.0  # seconds


@dataclass(frozen=True)
class Address:
    """Where an agent lies on the hub; `file` may be None where the repository has one zip only."""

    text: str
    repository: str
    file: str | None
    revision: str


def parse_address(text: str) -> Address:
    """The parts of an address; SpecError when it is none."""
    found = ADDRESS.fullmatch(text)
    if found is None:
        raise SpecError(f"{text!r}: not hub:OWNER/REPOSITORY[/FILE.zip][@REVISION], as hub:sb3/ppo-CartPole-v1")
    return Address(text, found[1], found[2], found[3] or "main")


def load_agent(
    text: str, algo: str | None = None, normalization: Normalization | Path | str | None = FROM_FOLDER
) -> StoredPolicy:
    """The agent at the address `text`, as `read_agent` reads it; its manifest names the commit.

    MissingExtra without huggingface_hub; PolicyError for what is neither on the hub nor in the cache, and for what
    `read_agent` refuses.
    """
    address = parse_address(text)
    snapshot, file = _fetch(address)
    with tempfile.TemporaryDirectory() as folder:
        try:
            stored = read_agent(_arrange_files(snapshot, file, Path(folder)), algo, normalization).store()
        except PolicyError as error:
            where = f"hub:{PurePosixPath(address.repository, file).parent}"
            raise PolicyError(str(error).replace(folder, where)) from error
        except OSError as error:
            raise StoreError(f"cannot write to {folder}: {error.strerror}; free some space, or set TMPDIR") from error
    return replace(stored, metadata=stored.metadata | {"hub": f"{address.repository}/{file}@{snapshot.name}"})


def save_agent(text: str, algo: str, name: str, folder: Path) -> Path:
    """The agent at the address `text` as `folder`/`name`.zip, with what says how it was trained beside it.

    It is read once, as one of `algo`, before the folder is there. Errors as `load_agent`, and StoreError where the
    folder holds something else or cannot be written.
    """
    address = parse_address(text)
    with new_folder(folder, f"{name}.zip") as work:
        snapshot, file = _fetch(address)
        path = work / f"{name}.zip"
        shutil.copyfile(snapshot / file, path)
        _copy_companions((snapshot / file).parent, work / name)
        try:
            read_agent(path, algo)
        except PolicyError as error:
            raise PolicyError(str(error).replace(str(work), address.text)) from error
    return folder / f"{name}.zip"


def _fetch(address: Address) -> tuple[Path, str]:
    """The folder in the cache that has the agent's files, and the name of the zip in it."""
    with needing("hub", "an agent of the Hugging Face hub"):
        from huggingface_hub.errors import HFValidationError, RepositoryNotFoundError, RevisionNotFoundError
    try:
        with warnings.catch_warnings(action="ignore"):  # of what then fails, in more words
            return _download(address)
    except HFValidationError as error:
        raise SpecError(f"{address.text}: {error}") from error
    except RepositoryNotFoundError as error:
        raise PolicyError(
            f"{address.text}: the hub shows no such repository; check the name, or log in with `hf auth login`"
        ) from error
    except RevisionNotFoundError as error:
        raise PolicyError(
            f"{address.text}: no branch, tag or commit {address.revision!r}; leave it out for the newest"
        ) from error
    except QuarlError:
        raise
    except Exception as error:  # noqa: BLE001  (no network, a hub that fails or talks nonsense, a full disk)
        # The hub's library lets errors of its client for HTTP through, which is another one from version to version.
        return _find_cached(address, getattr(error, "strerror", None) or type(error).__name__)


def _download(address: Address) -> tuple[Path, str]:
    from huggingface_hub import HfApi, hf_hub_download, snapshot_download
    from huggingface_hub.utils.tqdm import disable_progress_bars

    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # it tells of every retry; one line says the outcome
    if not sys.stderr.isatty():
        disable_progress_bars()
    info = HfApi().model_info(address.repository, revision=address.revision, files_metadata=True, timeout=TIMEOUT)
    sizes = {entry.rfilename: entry.size or 0 for entry in info.siblings or ()}
    file = _choose_zip(address, sizes)
    beside = [str(PurePosixPath(file).with_name(name)) for name in COMPANIONS]
    if max(sizes.get(name, 0) for name in (file, *beside)) > LIMIT:
        raise PolicyError(f"{address.text}: larger than the {LIMIT} bytes of any policy; it is not downloaded")
    snapshot = Path(snapshot_download(address.repository, revision=address.revision, allow_patterns=beside))
    hf_hub_download(address.repository, file, revision=snapshot.name)  # last: where a zip is, all is
    return snapshot, file


def _find_cached(address: Address, reason: str) -> tuple[Path, str]:
    from huggingface_hub import snapshot_download

    snapshot, files = Path(), []
    with contextlib.suppress(OSError):  # of the folder, whatever it lacks: of a repository only some files are fetched
        where = snapshot_download(
            address.repository, revision=address.revision, local_files_only=True, allow_patterns=[]
        )
        snapshot = Path(where)
        files = [path.relative_to(snapshot).as_posix() for path in snapshot.rglob("*.zip")]
    if not any(address.file in (None, name) for name in files):
        raise PolicyError(
            f"{address.text}: not in the cache, and not to be had from the hub ({reason}); try again, or pass a .zip"
        )
    return snapshot, _choose_zip(address, files)


def _choose_zip(address: Address, files: Iterable[str]) -> str:
    zips = sorted(name for name in files if name.endswith(".zip") and PurePosixPath(name).name != METRICS)
    chosen = [name for name in zips if address.file in (None, name)]
    if len(chosen) == 1:
        return chosen[0]
    if not zips:
        raise PolicyError(f"{address.text}: no .zip there, so no agent of stable-baselines3; name another repository")
    wrong = "several zips; name one of them" if chosen else "no such file; name one of its zips"
    raise PolicyError(f"{address.text}: {wrong}: {', '.join(zips[:20])}")


def _arrange_files(snapshot: Path, file: str, folder: Path) -> Path:
    """The files as rl-baselines3-zoo names them, and as `read_agent` expects them; the path of the zip."""
    path = folder / PurePosixPath(file).name
    path.symlink_to((snapshot / file).absolute())
    _copy_companions((snapshot / file).parent, path.with_suffix(""))
    return path


def _copy_companions(source: Path, folder: Path) -> None:
    folder.mkdir(parents=True)
    for theirs, ours in COMPANIONS.items():
        if (source / theirs).is_file():
            shutil.copyfile(source / theirs, folder / ours)
