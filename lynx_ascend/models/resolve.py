"""From what a user writes (`smollm2`, a folder, a hub id) to what an engine's `--model` takes."""

from __future__ import annotations

from pathlib import Path

from lynx_ascend.errors import ModelError
from lynx_ascend.models import catalog
from lynx_ascend.models.prepare import is_prepared, model_folder, prepare_model


def resolve_model(name_or_path: str, *, prepare: bool = True, quiet: bool = False) -> str:
    """A known name is its folder; an existing path stays; the rest is a hub id.

    prepare: make the folder of a known name if need be. `ModelError` if that fails, or if a path is not there.
    """
    if name_or_path in catalog.CATALOG:
        return str(prepare_model(name_or_path, quiet=quiet) if prepare else model_folder(name_or_path))
    path = Path(name_or_path).expanduser()
    if path.exists():
        return str(path.absolute())
    if name_or_path.startswith((".", "/", "~")):
        raise ModelError(f"{name_or_path} is not there (known names: {', '.join(catalog.CATALOG)})")
    return name_or_path


def model_path(name: str) -> Path:
    """The folder of a prepared model; `ModelError` saying how to make it if it is not there or damaged."""
    spec = catalog.find(name)
    if not is_prepared(spec):
        raise ModelError(f"{name} is not prepared; run: lynx-ascend model prepare {name}")
    return model_folder(name)
