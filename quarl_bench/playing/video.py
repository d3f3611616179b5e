"""Frames as a file: an animated GIF, or MP4."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from quarl_bench.errors import SpecError
from quarl_bench.playing.scenes import Picture
from quarl_bench.system.atomic import write_file
from quarl_bench.system.extras import require

GIF, MP4 = ".gif", ".mp4"


def check_suffix(path: Path) -> None:
    """SpecError for a file that is no .gif and no .mp4."""
    if path.suffix not in (GIF, MP4):
        raise SpecError(f"--video {path}: a video is a {GIF} or a {MP4} file")


def load_writer(path: Path) -> Any:
    """The library that writes such a file; MissingExtra where a part of it is missing."""
    require("PIL.Image", "video", "a video")
    if path.suffix == MP4:
        require("imageio_ffmpeg", "video", "an .mp4 file")
    return require("imageio.v3", "video", "a video")


def write_video(path: Path, frames: Sequence[Picture], rate: float) -> int:
    """Write all `frames` (height, width, 3), `rate` of them a second, and tell the file's size in bytes."""
    imageio = load_writer(path)
    if path.suffix == GIF:
        content = imageio.imwrite(
            "<bytes>", list(frames), extension=GIF, plugin="pillow", duration=1000 / rate, loop=0, optimize=True
        )
    else:
        content = imageio.imwrite(
            "<bytes>", list(frames), extension=MP4, plugin="FFMPEG", fps=rate, macro_block_size=2, codec="libx264"
        )
    write_file(path, content)
    return len(content)
