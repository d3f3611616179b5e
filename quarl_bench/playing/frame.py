"""Panels as one picture: side by side, each under its scheme's name and its return so far."""

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from quarl_bench.playing.scenes import Picture
from quarl_bench.playing.stage import Panel
from quarl_bench.system.extras import require

GAP, BAR = 6, 34  # pixels between panels; of the caption above each
PAPER, INK, FADED = (250, 250, 250), (20, 20, 20), (120, 120, 120)
SMALLEST_TEXT, LARGEST_TEXT = 10, 14  # pixels


@cache
def load_pillow() -> tuple[Any, Any, Any]:
    """Its modules Image, ImageDraw and ImageFont; MissingExtra without them."""
    image, draw, font = (require(f"PIL.{name}", "video", "a video") for name in ("Image", "ImageDraw", "ImageFont"))
    return image, draw, font


def compose(panels: Sequence[Panel], width: int) -> Picture:
    """One frame (height, width, 3) of panels `width` pixels wide; both sides are even, as video codecs want them."""
    image, draw, _ = load_pillow()
    shown = [_fit(panel, width) for panel in panels]
    height = max(picture.height for picture in shown) + BAR
    across = len(shown) * (width + GAP) - GAP
    frame = image.new("RGB", (across + across % 2, height + height % 2), PAPER)
    pen = draw.Draw(frame)
    for place, (panel, picture) in enumerate(zip(panels, shown, strict=True)):
        frame.paste(picture, (place * (width + GAP), BAR))
        _caption(pen, panel, place * (width + GAP), width)
    return np.asarray(frame, dtype=np.uint8)


def describe(panel: Panel) -> tuple[str, str]:
    """A caption's two lines."""
    state = "ended at" if panel.ended else "at"
    return panel.name, f"return {panel.gained:,.1f} {state} step {panel.steps:,}"


def _caption(pen: Any, panel: Panel, left: int, width: int) -> None:
    _, _, font = load_pillow()
    size = min(LARGEST_TEXT, max(SMALLEST_TEXT, width // 18))
    for row, (text, ink) in enumerate(zip(describe(panel), (INK, FADED), strict=True)):
        pen.text((left + 2, 1 + row * (BAR // 2)), text, fill=ink, font=font.load_default(size))


def _fit(panel: Panel, width: int) -> Any:
    image, _, _ = load_pillow()
    picture = image.fromarray(panel.picture)
    height = max(1, round(picture.height * width / picture.width))
    return picture.resize((width, height), image.Resampling.BILINEAR)
