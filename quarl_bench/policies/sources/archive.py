"""Files from strangers: what a zip declares is checked before anything of it is read, and nothing is ever extracted."""

import io
import os
import stat
import struct
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from quarl_bench.errors import PolicyError

MEMBERS = 4096
DIRECTORY = 2**20  # bytes that the list of members may take
ENCRYPTED = 0x1
END, END_SIZE = b"PK\x05\x06", 22
END64, END64_SIZE, LOCATOR_SIZE = b"PK\x06\x06", 56, 20
COMPRESSIONS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
DAMAGE = (zipfile.BadZipFile, zlib.error, ValueError, LookupError, EOFError, OSError, OverflowError, struct.error)


@dataclass(frozen=True, eq=False)
class Archive:
    """A zip in memory whose members have plain, distinct names and modest sizes."""

    where: str
    sizes: dict[str, int]
    _data: bytes

    def read(self, name: str, limit: int) -> bytes:
        """The member called `name`; PolicyError when it is absent, larger than `limit`, or damaged."""
        if name not in self.sizes:
            raise PolicyError(f"{self.where}: no member {name!r}; this is not a zip of stable-baselines3")
        if self.sizes[name] > limit:
            raise PolicyError(
                f"{self.where}: member {name!r} unpacks to {self.sizes[name]} bytes, more than the {limit} that a "
                "policy may need; it is refused"
            )
        with zipfile.ZipFile(io.BytesIO(self._data)) as archive:
            return self._unpack(archive, name)

    def _unpack(self, archive: zipfile.ZipFile, name: str) -> bytes:
        try:
            with archive.open(name) as stream:
                # `archive.read` unpacks a gigabyte before it looks at the size that the header declares.
                content = stream.read(self.sizes[name] + 1)
        except (*DAMAGE, NotImplementedError, RuntimeError) as error:
            raise PolicyError(f"{self.where}: member {name!r} is damaged ({_first_line(error)}); restore it") from error
        if len(content) != self.sizes[name]:
            raise PolicyError(
                f"{self.where}: member {name!r} is damaged (it has another size than it says); restore it"
            )
        return content


def open_archive(data: bytes, where: str, total: int) -> Archive:
    """The zip in `data`, whose members unpack to at most `total` bytes; PolicyError when it is not to be trusted."""
    _check_directory(data, where)
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = archive.infolist()
    except (*DAMAGE, NotImplementedError, RuntimeError) as error:
        raise PolicyError(f"{where}: not a zip ({_first_line(error)}); restore it") from error
    if len(members) > MEMBERS:
        raise PolicyError(f"{where}: {len(members)} members, more than the {MEMBERS} of any policy; it is refused")
    for member in members:
        fault = _find_fault(member)
        if fault:
            raise PolicyError(f"{where}: member {member.filename[:80]!r} {fault}; the zip is refused")
    sizes = {member.filename: member.file_size for member in members}
    if len({name.casefold() for name in sizes}) != len(members):  # torch's reader knows no case
        raise PolicyError(f"{where}: two members have one name; the zip is refused")
    if sum(sizes.values()) > total:
        raise PolicyError(f"{where}: unpacks to {sum(sizes.values())} bytes, more than {total}; the zip is refused")
    return Archive(where, sizes, data)


def read_file(path: Path, limit: int, *, follow: bool = False) -> bytes:
    """A regular file of at most `limit` bytes; links only where `follow`, for the path that the user typed."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | (0 if follow else os.O_NOFOLLOW))
        try:
            status = os.fstat(handle)
            if not stat.S_ISREG(status.st_mode):
                raise PolicyError(f"{path}: not a regular file; give the file itself")
            if status.st_size > limit:
                raise PolicyError(f"{path}: {status.st_size} bytes, more than the {limit} of any such file")
            if status.st_size == 0:
                raise PolicyError(f"{path}: an empty file; write it again")
            with os.fdopen(handle, "rb", closefd=False) as stream:
                return stream.read(limit)
        finally:
            os.close(handle)
    except OSError as error:
        link = not follow and path.is_symlink()
        said = "a link, which may lead anywhere; put the file itself there" if link else error.strerror or str(error)
        said += "; check the path" if isinstance(error, FileNotFoundError) else ""
        raise PolicyError(f"{path}: {said}") from error
    except ValueError as error:  # a null byte in the path
        raise PolicyError(f"{str(path)!r}: no path of a file") from error


def _check_directory(data: bytes, where: str) -> None:
    """Refuse a list of members too long to be parsed; looks where `zipfile` looks."""
    end = len(data) - END_SIZE
    if data[max(end, 0) : end + 4] != END or data[-2:] != b"\0\0":
        end = data.rfind(END, max(0, len(data) - END_SIZE - 2**16))
    if end < 0 or end + END_SIZE > len(data):
        raise PolicyError(f"{where}: not a zip, or cut short; restore it")
    size = struct.unpack_from("<L", data, end + 12)[0]
    end64 = end - LOCATOR_SIZE - END64_SIZE
    if end64 >= 0 and data[end64 : end64 + 4] == END64:
        size = max(size, struct.unpack_from("<Q", data, end64 + 40)[0])
    if size > DIRECTORY:
        raise PolicyError(f"{where}: lists far more members than any policy has; the zip is refused")


def _find_fault(member: zipfile.ZipInfo) -> str:
    path = PurePosixPath(member.filename)
    if path.is_absolute() or ".." in path.parts or "\\" in member.filename:
        return "leads out of the zip"
    if stat.S_ISLNK(member.external_attr >> 16):
        return "is a link"
    if member.flag_bits & ENCRYPTED:
        return "is encrypted"
    if member.compress_type not in COMPRESSIONS:
        return "is compressed in an unusual way"
    return ""


def _first_line(error: BaseException) -> str:
    lines = str(error).splitlines()
    return lines[0][:80] if lines else type(error).__name__
