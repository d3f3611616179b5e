"""README: its size, its pictures, its commands (each in a short form), its output, and its links."""

import configparser
import re
import shlex
import tomllib

import pytest

from tests.support.commands import run_commands
from tests.support.forks import run_python
from tests.support.places import POLICIES, ROOT
from tests.support.sizes import choose

README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```console\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
LINES = [line.removeprefix("$ ").partition("  #")[0].strip() for block in BLOCKS for line in block.splitlines()]
COMMANDS = [line for line in LINES if line.startswith("quarl ")]
QUICK = [line for line in COMMANDS if line.split()[1] in ("check", "play", "deploy")]  # the others take ten seconds
TOOLS = ("pip install", "python3.11 -m venv", ".venv/bin/tox run")  # tox and CI run these
SHORT = {  # what is added to a command, so that it takes seconds; a policy or an environment of one's own is made here
    "check": ["--episodes", "10", "--scheme", "int8"],
    "repair": ["--episodes", "5", "--budget", "2s"],
    "play": ["--steps", "20", "--width", "60"],
    "deploy": [],
    "prove": ["--episodes", "2", "--backends", "integer,litert,onnx,c"],
    "train": ["--steps", "1000"],
}
SMALLER = {"repair": ("dqn-lunarlander-seed0", "ppo-cartpole-seed0")}  # where a search takes seconds
MODULE = """
import gymnasium, torch

policy = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))

class MyEnv(gymnasium.make("CartPole-v1").unwrapped.__class__):
    max_episode_steps = 30
"""


def test_it_fits_on_a_screen_or_two():
    assert len(README.encode()) <= 8_000
    assert README.count("\n") <= 150
    assert README.count("![") == 2


def test_every_link_and_picture_is_there():
    targets = re.findall(r"\]\(([^)]+)\)", README)
    assert len(targets) > 15
    for target in targets:
        path, _, anchor = target.partition("#")
        assert (ROOT / path).is_file(), target
        text = (ROOT / path).read_text(encoding="utf-8", errors="replace")
        names = [re.sub(r"[^\w -]", "", line.lower()) for line in re.findall(r"^#+ (.*)", text, re.MULTILINE)]
        assert not anchor or anchor.replace("-", " ") in names, target
    assert (ROOT / "docs/pictures/landing.gif").stat().st_size < 1_000_000


def test_every_line_is_a_command_that_is_known_here():
    output = {line for block in BLOCKS if block.startswith("$ ") for line in block.splitlines()[1:]}
    for line in LINES:
        assert line in output or line.startswith(("quarl ", *TOOLS)), line


@pytest.mark.parametrize("line", choose(QUICK, COMMANDS), ids=lambda line: " ".join(line.split()[1:3]))
@pytest.mark.needs("sb3", "onnx", "litert", "cc", "box2d", "video")
def test_its_commands_run(line, tmp_path, monkeypatch):
    from tests.support.agents import saved_members, write_members

    monkeypatch.setenv("QUARL_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "agent.zip").write_bytes(write_members(dict(saved_members())))
    (tmp_path / "mymodule.py").write_text(MODULE)
    (tmp_path / "baselines").mkdir()
    (tmp_path / "baselines" / "policies").symlink_to(POLICIES)
    _, command, *rest = shlex.split(line)
    rest = [SMALLER[command][1] if command in SMALLER and word == SMALLER[command][0] else word for word in rest]
    (done,) = run_commands(tmp_path, [command, *rest, *SHORT[command]])
    assert done.code in {0, 1, 3}, done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.needs("sb3")
def test_the_test_of_a_project_runs(tmp_path):
    """Word for word; 100 episodes of an agent that never learned may be kept or lost."""
    from tests.support.agents import saved_members, write_members

    (block,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert len(block.splitlines()) == 5
    (tmp_path / "agent.zip").write_bytes(write_members(dict(saved_members())))
    (tmp_path / "test_release.py").write_text(block)
    done = run_python("-m", "pytest", "-q", "-p", "no:cacheprovider", "test_release.py", cwd=tmp_path)
    assert done.returncode in {0, 1}, done.stdout
    assert "error" not in done.stdout.lower().replace("assertionerror", "")


def test_what_check_prints_is_what_it_prints(tmp_path):
    (shown,) = (block.splitlines()[1:] for block in BLOCKS if block.startswith("$ quarl check"))
    assert len(shown) == 9
    schemes = choose(["int4"], ["fp16", "w8", "int8", "int4", "int2"])
    commands = [["evaluate", "ppo-cartpole-seed0", "--scheme", scheme, "--json"] for scheme in schemes]
    for scheme, done in zip(schemes, run_commands(tmp_path, *commands), strict=True):
        line = next(line for line in shown if line.startswith(scheme)).split()
        assert float(line[1]) == pytest.approx(done.result["measured"]["mean"], rel=1e-3)
        assert line[-1] == done.result["verdict"]["outcome"]


def test_ci_runs_its_test_command():
    """Word for word, in an environment that is made as it says, and of every part of `tox run`."""
    script = ROOT / ".ci" / "run"
    if not script.exists():
        pytest.skip("needs a checkout")
    lines = [line.strip() for line in script.read_text(encoding="utf-8").splitlines()]
    made, tested = lines.index("python3.11 -m venv .venv"), lines.index(".venv/bin/tox run")
    assert "rm -rf .venv .tox" in lines[:made], "nothing of an earlier run is used"
    assert "`.venv/bin/tox run` runs the package's own tests" in README.replace("\n", " ")
    assert "python3.11 -m venv .venv && .venv/bin/pip install tox" in LINES
    assert any(re.fullmatch(r"\.venv/bin/pip install( --quiet)? tox", line) for line in lines[made:tested])
    tox = configparser.ConfigParser(inline_comment_prefixes="#")
    tox.read(ROOT / "tox.ini")
    assert tox["tox"]["env_list"].split(", ") == ["lint", "test"]
    assert tox["testenv:test"]["commands"].split("\n")[1:] == [
        "pytest -o strict=true -n auto --dist worksteal tests {posargs}",
    ]
    changed = [line for line in lines if re.match(r"(export |QUARL_|PYTEST_|TOX_)", line)]
    assert not changed, "a variable would make it another run than a user's"


def test_the_environment_that_reproduces_the_papers_is_there():
    tox = (ROOT / "tox.ini").read_text(encoding="utf-8")
    assert "[testenv:claims]" in tox
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    assert "all" in extras
