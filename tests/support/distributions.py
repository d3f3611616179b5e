"""Distributions of others: a folder on the path with modules and the metadata that pip would leave there."""

import tomllib
from pathlib import Path


def install(folder: Path, name: str, groups: dict[str, dict[str, str]], **modules: str) -> None:
    """A distribution called `name`, version 1.0, with entry points by group, and modules by name."""
    metadata = folder / f"{name.replace('-', '_')}-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    lines = [line for group, points in groups.items() for line in (f"[{group}]", *map(" = ".join, points.items()))]
    (metadata / "entry_points.txt").write_text("\n".join(lines) + "\n")
    for module, text in modules.items():
        (folder / f"{module}.py").write_text(text)


def install_project(folder: Path) -> None:
    """What `pip install --editable .` does with the project in `folder`."""
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    install(folder, project["name"], project["entry-points"])
