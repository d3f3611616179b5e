"""Frames as a file: an animated GIF, or MP4."""

import io
import tempfile
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
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
    pillow = require("PIL.Image", "video", "a video")
    if path.suffix == GIF:
        return pillow
    require("imageio_ffmpeg", "video", "an .mp4 file")
    return require("imageio.v2", "video", "an .mp4 file")


def write_video(path: Path, frames: Sequence[Picture], rate: float, tell: Callable[[], Any] = lambda: None) -> int:
    """Write all `frames` (height, width, 3), `rate` of them a second, and tell the file's size in bytes.

    `tell` is called behind each frame that was encoded.
    """
    library, told = load_writer(path), _tell_each(frames, tell)
    if path.suffix == GIF:
        content = _encode_gif(library, told, _spread(len(frames), rate))
    else:
        content = _encode_mp4(library, told, rate)
    write_file(path, content)
    return len(content)


def _tell_each(frames: Sequence[Picture], tell: Callable[[], Any]) -> Iterator[Picture]:
    for frame in frames:
        yield frame
        tell()


def _spread(count: int, rate: float) -> list[int]:
    """Milliseconds of each of `count` frames in the hundredths that a GIF has: as long together as `rate` says."""
    ends = [round(100 * frame / rate) for frame in range(count + 1)]
    return [10 * (end - start) for start, end in pairwise(ends)]


def _encode_gif(pillow: Any, frames: Iterator[Picture], durations: list[int]) -> bytes:
    pictures, file = map(pillow.fromarray, frames), io.BytesIO()
    next(pictures).save(file, "GIF", save_all=True, append_images=pictures, duration=durations, loop=0, optimize=True)
    return file.getvalue()


def _encode_mp4(imageio: Any, frames: Iterator[Picture], rate: float) -> bytes:
    with tempfile.TemporaryDirectory(prefix="quarl-play-") as folder:
        path = Path(folder) / f"video{MP4}"
        how = {"fps": rate, "macro_block_size": 2, "codec": "libx264"}
        with imageio.get_writer(path, format="FFMPEG", mode="I", **how) as writer:
            for frame in frames:
                writer.append_data(frame)
        return path.read_bytes()
