"""A prepared folder's files with sizes and digests. Written last: a folder without it is not finished."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from lynx_ascend.errors import ModelError

FILE = "lynx-manifest.json"
VERSION = 1


def write_manifest(folder: Path, source: str) -> None:
    """Records every file in `folder`; `source` names what it was made from (a digest)."""
    files = {
        str(file.relative_to(folder)): {"bytes": file.stat().st_size, "sha256": sha256(file)}
        for file in sorted(folder.rglob("*"))
        if file.is_file() and file.name != FILE
    }
    text = json.dumps({"version": VERSION, "source": source, "files": files}, indent=2)
    (folder / FILE).write_text(text + "\n")


def check_manifest(folder: Path, source: str, *, hashes: bool = False) -> None:
    """`ModelError` unless every listed file is there with its size (and, with `hashes`, its digest)."""
    try:
        manifest = json.loads((folder / FILE).read_text())
        version, made_from, files = manifest["version"], manifest["source"], manifest["files"].items()
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        raise ModelError(f"{folder} has no readable {FILE}") from error
    if version != VERSION or made_from != source:
        raise ModelError(f"{folder} was made by another version of this package")
    for name, entry in files:
        file = folder / name
        if not file.is_file() or file.stat().st_size != entry["bytes"]:
            raise ModelError(f"{file} is missing or has another size")
        if hashes and sha256(file) != entry["sha256"]:
            raise ModelError(f"{file} is damaged: its SHA-256 is not the recorded one")


def sha256(file: Path) -> str:
    """The hexadecimal SHA-256 of a file's content."""
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
