from __future__ import annotations

import dataclasses
import threading

import pytest

from lynx_ascend.errors import ModelError
from lynx_ascend.models import catalog, model_path, prepare_model, resolve_model
from lynx_ascend.models.manifest import FILE

WHOLE = b"first half, second half"


def left(cache) -> set[str]:
    """What a preparation leaves beside the lock."""
    folder = cache / "models"
    return {entry.name for entry in folder.iterdir()} - {".tiny.lock"} if folder.exists() else set()


def test_makes_the_folder_once(index, cache):
    folder = prepare_model("tiny", quiet=True)
    assert folder == cache / "models" / "tiny" == model_path("tiny")
    assert (folder / "model.safetensors").read_bytes() == WHOLE
    assert (folder / "LICENSE").read_text() == "free"
    assert left(cache) == {"tiny"}
    assert prepare_model("tiny") == folder
    assert prepare_model("tiny", verify=True) == folder
    assert index.downloads == index.conversions == 1
    prepare_model("tiny", force=True, quiet=True)
    assert index.downloads == 2
    assert left(cache) == {"tiny"}


def test_shows_progress_on_stderr_only(index, capsys):
    prepare_model("tiny")
    captured = capsys.readouterr()
    assert not captured.out
    for word in ("download", "unpack", "ready"):
        assert word in captured.err


@pytest.mark.parametrize("failure", [ModelError, KeyboardInterrupt])
def test_a_failure_leaves_nothing(index, cache, monkeypatch, failure):
    if failure is ModelError:
        spec = dataclasses.replace(catalog.CATALOG["tiny"], gguf_sha256="f" * 64)
        monkeypatch.setitem(catalog.CATALOG, "tiny", spec)
    else:
        index.break_conversion = True
    with pytest.raises(failure):
        prepare_model("tiny", quiet=True)
    assert left(cache) == set()


def test_a_failed_remake_keeps_the_old_one(index, cache):
    folder = prepare_model("tiny", quiet=True)
    index.break_conversion = True
    with pytest.raises(KeyboardInterrupt):
        prepare_model("tiny", force=True, quiet=True)
    assert model_path("tiny") == folder
    assert left(cache) == {"tiny"}


def test_what_a_killed_process_left_is_removed(index, cache):
    (cache / "models" / ".tiny-abc").mkdir(parents=True)
    prepare_model("tiny", quiet=True)
    assert left(cache) == {"tiny"}


@pytest.mark.parametrize(
    ("damage", "seen_without_verify"),
    [
        (lambda folder: (folder / "model.safetensors").write_bytes(b"short"), True),
        (lambda folder: (folder / "config.json").unlink(), True),
        (lambda folder: (folder / FILE).unlink(), True),
        (lambda folder: (folder / FILE).write_text("[]"), True),
        (lambda folder: (folder / "model.safetensors").write_bytes(WHOLE.upper()), False),
    ],
)
def test_a_damaged_folder_is_made_anew(index, damage, seen_without_verify):
    folder = prepare_model("tiny", quiet=True)
    damage(folder)
    prepare_model("tiny", quiet=True)
    assert index.downloads == (2 if seen_without_verify else 1)
    prepare_model("tiny", verify=True, quiet=True)
    assert index.downloads == 2
    assert (folder / "model.safetensors").read_bytes() == WHOLE


def test_several_at_once_make_it_once(index):
    threads = [
        threading.Thread(target=prepare_model, args=("tiny",), kwargs={"quiet": True}) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert index.conversions == 1


def test_resolve(index, cache, tmp_path):
    with pytest.raises(ModelError, match="lynx-ascend model prepare tiny"):
        model_path("tiny")
    assert resolve_model("tiny", prepare=False) == str(cache / "models" / "tiny")
    assert index.downloads == 0
    assert resolve_model("tiny", quiet=True) == str(model_path("tiny"))
    assert resolve_model(str(tmp_path)) == str(tmp_path)
    assert resolve_model("owner/name") == "owner/name"
    with pytest.raises(ModelError, match="is not there"):
        resolve_model("./nowhere")
    with pytest.raises(ModelError, match="known: smollm2"):
        prepare_model("nobody")
