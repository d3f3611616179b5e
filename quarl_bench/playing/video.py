"""Frames as a file: an animated GIF, or MP4."""

from collections.abc import Sequence
from pathlib import Path

from quarl_bench.errors import SpecError
from quarl_bench.playing.scenes import Picture
from quarl_bench.system.atomic import write_file
from quarl_bench.system.extras import require

GIF, MP4 = ".gif", ".mp4"


def check_video(path: Path) -> None:
    """SpecError for a file that is no .gif and no .mp4; MissingExtra without the library that writes it."""
    if path.suffix not in (GIF, MP4):
        raise SpecError(f"--video {path}: a video is a {GIF} or a {MP4} file")
    for module in ("PIL.Image", "imageio.v3"):
        require(module, "video", "a video")
    if path.suffix == MP4:
        require("imageio_ffmpeg", "video", "an .mp4 file")


def write_video(path: Path, frames: Sequence[Picture], rate: float) -> int:
    """Write all `frames` (height, width, 3), `rate` of them a second, and tell the file's size in bytes."""
    imageio = require("imageio.v3", "video", "a video")
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
