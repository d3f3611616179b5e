"""Agents of the Hugging Face hub, from a server that answers as the hub does, and from the cache that it leaves."""

import hashlib
import json
import os
import re
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

from quarl_bench.errors import MissingExtra, PolicyError, QuarlError, SpecError
from quarl_bench.experiments import hub
from quarl_bench.experiments.hub import Address, load_agent, parse_address
from quarl_bench.experiments.zoo_agents import find_zip, read_agent
from quarl_bench.experiments.zoo_download import fetch_agents
from quarl_bench.policies.sources.sb3.zoo_config import ARGS, CONFIG
from tests.support.agents import NO_ZOO, forge, list_zoo, replace_pickle
from tests.support.commands import PROCESS
from tests.support.forks import run_python
from tests.support.hostile import LIVE
from tests.support.places import ROOT
from tests.support.sizes import choose

pytestmark = pytest.mark.needs("hub")

AGENT, ADDRESS = "ppo-CartPole-v1.zip", "hub:sb3/ppo-CartPole-v1"
TEXTS = {CONFIG: b"n_envs: 8", ARGS: b"{algo: ppo, env: CartPole-v1}"}
OTHERS = {"README.md": b"# PPO", "results.json": b"{}", "train_eval_metrics.zip": b"PK", "ppo-CartPole-v1/data": b"{}"}
Files = dict[str, bytes]


class Hub(ThreadingHTTPServer):
    """Repositories by name and revision, under the paths and with the headers of the hub; notes what was fetched."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.repositories: dict[str, dict[str, Files]] = {}
        self.fetched: list[str] = []
        self.cut: set[str] = set()  # files whose connection breaks half-way
        self.url = f"http://127.0.0.1:{self.server_port}"

    def publish(self, files: Files, repository: str = "sb3/ppo-CartPole-v1", revision: str = "main") -> None:
        self.repositories.setdefault(repository, {})[revision] = files


class Handler(BaseHTTPRequestHandler):
    server: Hub

    def log_message(self, *_: Any) -> None:
        """Say nothing."""

    def do_HEAD(self) -> None:
        self.answer(body=False)

    def do_GET(self) -> None:
        self.answer(body=True)

    def answer(self, *, body: bool) -> None:
        path = unquote(urlsplit(self.path).path)
        found = re.fullmatch(r"/(?:api/models/)?([^/]+/[^/]+)/(revision|resolve|tree)/([^/]+)(?:/(.+))?", path)
        if found is None:  # what a version of the client asks for besides
            return self.refuse("EntryNotFound")
        repository, asked, revision, file = found.groups()
        if repository not in self.server.repositories:
            return self.refuse("RepoNotFound")
        versions = {commit_of(files): files for files in self.server.repositories[repository].values()}
        files = (versions | self.server.repositories[repository]).get(revision)
        if files is None:
            return self.refuse("RevisionNotFound")
        if file is not None and file not in files:
            return self.refuse("EntryNotFound")
        sizes = {name: len(content) for name, content in files.items()}
        siblings = [{"rfilename": name, "size": size} for name, size in sizes.items()]
        listing: Any = {"id": repository, "sha": commit_of(files), "siblings": siblings}
        if asked == "tree":
            listing = [{"type": "file", "path": name, "size": size, "oid": name} for name, size in sizes.items()]
        content = json.dumps(listing).encode() if file is None else files[file]
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("X-Repo-Commit", commit_of(files))
        self.send_header("ETag", f'"{hashlib.sha256(content).hexdigest()}"')
        self.end_headers()
        if body:
            if file is not None:
                self.server.fetched.append(file)
            self.wfile.write(content[: len(content) // 2] if file in self.server.cut else content)
        return None

    def refuse(self, code: str) -> None:
        self.send_response(404)
        self.send_header("X-Error-Code", code)
        self.send_header("Content-Length", "0")
        self.end_headers()


def commit_of(files: Files) -> str:
    return hashlib.sha1(repr(sorted(files.items())).encode()).hexdigest()


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A hub that this process believes in, and an empty cache."""
    with Hub() as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.01,))
        thread.start()
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", running.url)
        template = running.url + "/{repo_id}/resolve/{revision}/{filename}"
        for module in ("constants", "file_download"):  # which has it depends on the version
            monkeypatch.setattr(f"huggingface_hub.{module}.HUGGINGFACE_CO_URL_TEMPLATE", template, raising=False)
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
        monkeypatch.chdir(tmp_path)
        yield running
        running.shutdown()
        thread.join()


def refuse(address: str, said: str, error: type[QuarlError] = PolicyError, **options: Any) -> None:
    with pytest.raises(error, match=said) as caught:
        load_agent(address, **options)
    assert "\n" not in str(caught.value)
    assert "/tmp" not in str(caught.value)


def test_the_command_line_plays_an_agent_with_the_hub_and_without(server: Hub, tmp_path: Path) -> None:
    server.publish({AGENT: forge()} | TEXTS | OTHERS)
    variables = {"HF_HUB_CACHE": str(tmp_path / "own"), "OMP_NUM_THREADS": "1"}

    def play(**more: str) -> Any:
        command = (*PROCESS, "evaluate", ADDRESS, "--episodes", 2, "--json")
        run = run_python(*command, env=os.environ | variables | more, cwd=ROOT)
        assert (run.returncode, run.stderr) == (0, "")
        return json.loads(run.stdout)

    result = play(HF_ENDPOINT=server.url)
    assert (result["environment"], result["measured"]["episodes"]) == ("CartPole-v1", 2)
    assert sorted(server.fetched) == ["args.yml", "config.yml", AGENT]
    assert server.fetched[-1] == AGENT
    assert play(HF_HUB_OFFLINE="1") == result
    assert len(server.fetched) == 3


@pytest.mark.skipif(not list_zoo(), reason=NO_ZOO)
def test_real_agents_are_the_same_from_the_hub(server: Hub) -> None:
    """As rl-baselines3-zoo pushes them: under other names, in one folder."""
    normalized = 0
    for path in pick_agents():
        algo, folder = path.parents[1].name, path.with_suffix("")
        files = {f"{algo}-{path.name}": path.read_bytes()} | OTHERS
        files |= {file.name.replace("vecn", "vec_n"): file.read_bytes() for file in folder.iterdir()}
        server.publish(files, f"sb3/{algo}-{path.stem}")
        found, expected = load_agent(f"hub:sb3/{algo}-{path.stem}"), read_agent(path).store()
        assert found.sha256 == expected.sha256
        source = f"sb3/{algo}-{path.stem}/{algo}-{path.name}@{commit_of(files)}"
        assert found.metadata == expected.metadata | {"hub": source}
        normalized += found.policy.transform.normalization is not None
    assert normalized > 0


def pick_agents() -> list[Path]:
    """All, or the first with statistics of observations and the first without."""
    agents = list_zoo()
    kept = [(path.with_suffix("") / "vecnormalize.pkl").exists() for path in agents]
    return choose([agents[kept.index(found)] for found in (True, False)], agents)


def test_the_zoo_is_fetched_once_and_found_where_the_claims_look(server: Hub, tmp_path: Path) -> None:
    zips = {name: {f"{name}.zip": forge()} | OTHERS for name in ("ppo-CartPole-v1", "ppo-LunarLander-v2")}
    root, cells = tmp_path / "zoo", [("ppo", "cartpole"), ("ppo", "lunarlander")]
    server.publish(zips["ppo-CartPole-v1"] | TEXTS | {CONFIG: b"normalize: false", "vec_normalize.pkl": b""})
    with pytest.raises(PolicyError, match=r"hub:sb3/ppo-CartPole-v1.* vecnormalize\.pkl lies beside it"):
        fetch_agents(cells, root)
    assert not list(root.rglob("*.zip"))
    server.publish(zips["ppo-CartPole-v1"] | TEXTS)
    with pytest.raises(PolicyError, match="hub:sb3/ppo-LunarLander-v2: the hub shows no such repository"):
        fetch_agents(cells, root)
    server.publish(zips["ppo-LunarLander-v2"], "sb3/ppo-LunarLander-v2")
    found = fetch_agents(cells, root)
    assert found["ppo-cartpole"] == root / "ppo" / "CartPole-v1_1" / "CartPole-v1.zip"
    assert found["ppo-lunarlander"] == find_zip(root, "ppo", "lunarlander")
    fetched = list(server.fetched)
    assert fetch_agents(cells, root) == found
    assert server.fetched == fetched
    server.publish({"dqn-CartPole-v1.zip": forge()}, "sb3/dqn-CartPole-v1")
    with pytest.raises(PolicyError, match=r"hub:sb3/dqn-CartPole-v1/.*: a zip of ppo, though the caller says 'dqn'"):
        fetch_agents([("dqn", "cartpole")], root)


def test_what_the_cache_has_is_asked_for_once_and_needs_no_hub(server: Hub) -> None:
    server.publish({AGENT: forge()} | TEXTS)
    first = load_agent(ADDRESS)
    fetched = list(server.fetched)
    assert load_agent(ADDRESS).sha256 == first.sha256
    assert server.fetched == fetched
    server.repositories.clear()
    server.shutdown()
    server.server_close()
    again = load_agent(ADDRESS)
    assert (again.sha256, again.metadata) == (first.sha256, first.metadata)
    refuse("hub:sb3/a2c-CartPole-v1", "not in the cache, and not to be had from the hub .*; try again, or pass a .zip")
    refuse(f"{ADDRESS}/other.zip", r"not in the cache, and not to be had from the hub \(Connect(ion)?Error\)")


def test_a_file_and_a_revision_can_be_named(server: Hub) -> None:
    old, new = forge(), forge(gamma=0.5)
    server.publish({AGENT: old, "second/x.zip": new} | TEXTS, revision="v1")
    server.publish({AGENT: new} | TEXTS)
    read = {
        name: load_agent(ADDRESS + name).metadata["zip_sha256"]
        for name in ("", "@main", f"/{AGENT}@v1", f"@{commit_of({AGENT: new} | TEXTS)}")
    }
    sha256 = {name: hashlib.sha256(data).hexdigest() for name, data in (("old", old), ("new", new))}
    assert list(read.values()) == [sha256[name] for name in ("new", "new", "old", "new")]
    assert load_agent(f"{ADDRESS}/second/x.zip@v1").metadata["zip_sha256"] == sha256["new"]


REFUSED: dict[str, tuple[Files, str, str]] = {
    "several": ({AGENT: b"", "b.zip": b"", **OTHERS}, "", rf"several zips; name one of them: b\.zip, {AGENT}$"),
    "none": (OTHERS, "", r"no \.zip there, so no agent of stable-baselines3; name another"),
    "unknown_file": ({AGENT: b""}, "/b.zip", rf"no such file; name one of its zips: {AGENT}$"),
    "metrics": (OTHERS, "/train_eval_metrics.zip", r"no \.zip there"),
    "revision": ({AGENT: b""}, "@v2", r"no branch, tag or commit 'v2'; leave it out"),
    "no_agent": ({AGENT: b"PK\3\4" + bytes(30)}, "", rf"hub:sb3/ppo-CartPole-v1/{AGENT}: not a zip"),
    "too_large": ({AGENT: bytes(1001)}, "", "larger than the 1000 bytes of any policy; it is not downloaded"),
    "large_text": ({AGENT: b"", CONFIG: bytes(1001)}, "", "larger than the 1000 bytes"),
    "no_text": ({AGENT: forge(_last_original_obs=0)}, "", rf"{AGENT}: trained on normalized observations, it seems"),
    "no_statistics": ({AGENT: forge(), **TEXTS, CONFIG: b"normalize: true"}, "", r"vecnormalize\.pkl is missing"),
    "other_algo": ({AGENT: forge(), **TEXTS, ARGS: b"algo: a2c"}, "", r"though args\.yml says 'a2c'"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_with_one_line(name: str, server: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    files, suffix, said = REFUSED[name]
    if "large" in name:
        monkeypatch.setattr(hub, "LIMIT", 1000)
    server.publish(files)
    refuse(ADDRESS + suffix, said)
    assert ("large" not in name) or not server.fetched


def test_unknown_repositories_and_ill_formed_addresses(server: Hub) -> None:
    refuse("hub:sb3/nothing", "hub:sb3/nothing: the hub shows no such repository; check the name")
    for text in ("hub:", "hub:ppo", "hub:a/b/c", "hub:a/b@", "hub:a/b/c.zip@d@e", "hub:a/b\n", "hub:ä/b", "zip:a/b"):
        refuse(text, "not hub:OWNER/REPOSITORY", SpecError)
    refuse("hub:a--b/c", "Cannot have -- or ..", SpecError)
    assert parse_address("hub:a/b/c d/e.zip@pr/1") == Address("hub:a/b/c d/e.zip@pr/1", "a/b", "c d/e.zip", "pr/1")


def test_an_interrupted_download_leaves_nothing_that_counts(server: Hub) -> None:
    server.publish({AGENT: forge()} | TEXTS)
    server.cut = {AGENT}
    refuse(ADDRESS, r"not in the cache, and not to be had from the hub \(\w+Error\); try again")
    server.cut = set()
    assert load_agent(ADDRESS).metadata["environment"] == "CartPole-v1"


@pytest.mark.parametrize("payload", ["os_system", "numpy_runstring", "protocol_5"])
def test_hostile_agents_are_refused_and_nothing_runs(payload: str, server: Hub, tmp_path: Path) -> None:
    def poison(members: Files) -> None:
        members["policy.pth"] = replace_pickle(members["policy.pth"], LIVE[payload])

    server.publish({AGENT: forge(poison)} | TEXTS)
    refuse(ADDRESS, rf"^hub:sb3/ppo-CartPole-v1/{AGENT}: policy\.pth: .* nothing of it was executed")
    statistics = {CONFIG: b"normalize: true", "vec_normalize.pkl": LIVE[payload]}
    server.publish({AGENT: forge()} | TEXTS | statistics)
    refuse(ADDRESS, r"vecnormalize\.pkl: .* nothing of it was executed")
    assert [path.name for path in tmp_path.iterdir()] == ["hub"]  # the cache, and no canary


def test_without_the_extra_the_message_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub.errors", None)
    refuse(ADDRESS, r"an agent of the Hugging Face hub needs an extra: pip install 'quarl_bench\[hub\]'", MissingExtra)
