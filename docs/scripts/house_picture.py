"""docs/house.svg: the floors of the package, as import-linter checks them."""

import tomllib
from pathlib import Path


def read_floors(project: Path) -> list[list[str]]:
    """The rooms of every floor as import-linter checks them, the highest floor first."""
    contracts = tomllib.loads(project.read_text(encoding="utf-8"))["tool"]["importlinter"]["contracts"]
    return [layer.replace("quarl_bench.", "").split(" | ") for layer in contracts[0]["layers"]]


def draw_house(floors: list[list[str]], width: int = 640, height: int = 34) -> str:
    """An SVG with a line of boxes per floor; imports go down only, so no arrow is needed."""
    box = f'viewBox="0 0 {width} {height * len(floors)}"'
    text = 'font-family="sans-serif" font-size="14" text-anchor="middle"'
    fill = f'height="{height - 4}" rx="4" fill="#eef2f7" stroke="#5b6b7f"'
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" {box} {text}>']
    for number, rooms in enumerate(floors):
        wide, top = width / len(rooms), height * number
        for index, room in enumerate(rooms):
            left = wide * index
            lines.append(f'<rect x="{left + 2:g}" y="{top + 2}" width="{wide - 4:g}" {fill}/>')
            lines.append(f'<text x="{left + wide / 2:g}" y="{top + 22}" fill="#1d2733">{room}</text>')
    return "\n".join([*lines, "</svg>", ""])
