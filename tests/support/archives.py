"""Zips and manifests with one part changed."""

import io
import json
import lzma
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.places import ROOT

SBX = ROOT / "tests" / "policies" / "sources" / "libraries" / "data" / "sbx"


def exchange_member(data: bytes, ending: str, change: Callable[[bytes], bytes]) -> bytes:
    """The archive with the members changed whose names end so."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(out, "w") as new:
        for name in old.namelist():
            content = old.read(name)
            new.writestr(name, change(content) if name.endswith(ending) else content)
    return out.getvalue()


def unpack_sbx(name: str, folder: Path) -> Path:
    """An agent of SBX as it was saved."""
    path = folder / f"{name}.zip"
    path.write_bytes(lzma.decompress((SBX / f"{name}.zip.xz").read_bytes()))
    return path


def edit_manifest(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the manifest of a policy or an artefact."""
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text())
    change(manifest)
    path.write_text(json.dumps(manifest))
