"""An encoder and a receiver over fake caches, joined by the real transport."""

from __future__ import annotations

import time
import uuid
from dataclasses import replace
from typing import Any


def until(condition: Any, timeout_s: float = 10.0) -> None:
    """Poll a condition that another thread makes true."""
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, "condition did not come true"
        time.sleep(0.002)


def laplacian(tokens: int, heads: int, dim: int, dtype: Any, seed: int = 0) -> Any:
    """Heavy-tailed values with one loud channel: like a K cache."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    u = torch.rand(tokens, heads, dim, generator=generator) - 0.5
    plane = -u.sign() * torch.log1p(-2 * u.abs().clamp(max=0.4999))
    plane[:, :, dim // 3] *= 30
    return plane.to(dtype)


class Recorder:
    """A layout that notes its writes and calls `before` ahead of each."""

    def __init__(self, layout: Any) -> None:
        self._layout = layout
        self.writes: list[tuple[str, int, int]] = []
        self.before: Any = lambda: None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._layout, name)

    def decode(self, plane: str, block_ids: Any, shape: Any, *what: Any, skip: int = 0) -> None:
        self.before()
        self._layout.decode(plane, block_ids, shape, *what, skip=skip)
        self.writes.append((plane, shape.first_token + skip, shape.tokens - skip))


class Lab:
    """An encoder on P's caches and a receiver on D's, joined by the TCP transport over loopback."""

    until, laplacian, Recorder = staticmethod(until), staticmethod(laplacian), Recorder
    BLOCK = 32

    def __init__(self, free_port: Any) -> None:
        self._free_port = free_port
        self._open: list[Any] = []

    def caches(self, kind: str = "tuple", *, blocks: int = 32, layers: int = 2, heads: int = 2, dim: int = 32,
               dtype: Any = None, fill: float = 0.0) -> dict[str, Any]:  # fmt: skip
        import torch

        dtype = dtype or torch.float32
        shapes = {
            "tuple": (blocks, self.BLOCK, heads, dim),
            "cpu": (blocks, heads, self.BLOCK, 2 * dim),
        }
        made: dict[str, Any] = {}
        for layer in range(layers):
            planes = tuple(
                torch.full(shapes[kind], fill, dtype=dtype) for _ in range(2 if kind == "tuple" else 1)
            )
            made[f"layers.{layer}"] = planes if kind == "tuple" else planes[0]
        return made

    def table(self, caches: dict[str, Any], **settings: Any) -> Any:
        from lynx_ascend.vllm.planes import PlaneTable
        from lynx_ascend.vllm.settings import LynxSettings

        return PlaneTable(caches, LynxSettings(**settings))

    def record(self, table: Any) -> list[Recorder]:
        """Put recorders in front of a table's layouts."""
        recorders = {id(plane.layout): Recorder(plane.layout) for plane in table.planes}
        table.planes = [replace(plane, layout=recorders[id(plane.layout)]) for plane in table.planes]
        table._by_key = {(plane.layer, plane.index): plane for plane in table.planes}
        return list(recorders.values())

    def blocks(self, tokens: int, first: int = 1) -> list[int]:
        """Block ids of a sequence, in falling order so that they are not its positions."""
        count = -(-tokens // self.BLOCK)
        return list(range(first + count - 1, first - 1, -1))

    def fill(self, table: Any, block_ids: list[int], tokens: int, *, nan_at: int | None = None) -> None:
        """Write values to every plane; `nan_at`: one token that is NaN, so that its page travels raw."""
        import torch

        for seed, plane in enumerate(table.planes):
            values = laplacian(tokens, plane.heads, plane.dim, plane.dtype, seed)
            if nan_at is not None:
                values[nan_at] = torch.nan
            plane.layout.scatter(plane.name, torch.tensor(block_ids), 0, values)

    def read(self, table: Any, block_ids: list[int], start: int, end: int) -> list[Any]:
        """[start, end) of every plane."""
        import torch

        ids = torch.tensor(block_ids)
        return [p.layout.gather(p.name, ids, start, end).clone() for p in table.planes]

    def decoded(
        self, table: Any, codec_name: str, block_ids: list[int], tokens: int, *, full: bool
    ) -> list[Any]:
        """What the codec makes of the planes: the reference for what D must hold."""
        import torch

        codec, ids = table.codec(codec_name), torch.tensor(block_ids)
        planes: dict[tuple[int, int], list[Any]] = {}
        for plane, _, shape in table.pieces(codec, tokens):
            start, end = shape.first_token, shape.first_token + shape.tokens
            source = plane.layout.gather(plane.name, ids, start, end)
            coded = codec.encode(source, plane.spec, first_token=start, recent=shape.recent)
            values = (
                codec.decode_full(shape, plane.spec, coded.anchor, coded.residual)
                if full
                else codec.decode_anchor(shape, plane.spec, coded.anchor)
            )
            planes.setdefault((plane.layer, plane.index), []).append(values)
        return [torch.cat(parts) for parts in planes.values()]

    def encoder(self, table: Any, **settings: Any) -> Any:
        from lynx_ascend.transport.tcp import ServerConfig, TransferServer
        from lynx_ascend.vllm.encoder import PlaneEncoder
        from lynx_ascend.vllm.settings import LynxSettings

        settings = LynxSettings(**{"port": self._free_port(), "fault_injection": True, **settings})
        server = TransferServer(
            ServerConfig(
                layout_hash=table.layout_hash(),
                staging_bytes=settings.staging_mb * 1_000_000,
                port=settings.port,
                generation=7,
                lease_s=settings.lease_s,
            )
        )
        server.start()
        self._open.append(encoder := PlaneEncoder(table, server, settings))
        encoder.port, encoder.server = settings.port, server
        return encoder

    def receiver(self, table: Any, *, max_tokens: int = 2048, **settings: Any) -> Any:
        from lynx_ascend.codec import servable_codecs
        from lynx_ascend.transport.tcp import ClientConfig, TransferClient
        from lynx_ascend.vllm.planes import TransferLimits
        from lynx_ascend.vllm.receiver import PlaneReceiver
        from lynx_ascend.vllm.settings import LynxSettings

        settings = LynxSettings(**settings)
        limits = TransferLimits(table, [table.codec(name) for name in servable_codecs()], max_tokens)
        client = TransferClient(
            ClientConfig(
                layout_hash=table.layout_hash(), limits=limits, staging_bytes=settings.staging_mb * 1_000_000
            )
        )
        self._open.append(receiver := PlaneReceiver(table, client, settings, 0))
        receiver.client = client
        return receiver

    def handle(self, port: int, tokens: int, codec: str, transfer_id: str | None = None) -> Any:
        from lynx_ascend.vllm.params import RemotePrefill

        return RemotePrefill(
            transfer_id=transfer_id or uuid.uuid4().hex, generation=7, host="127.0.0.1", port=port,
            prompt_tokens=tokens, prompt_digest="", first_token=None, codec=codec, max_draft=64, token_times=False,
        )  # fmt: skip

    def close(self) -> None:
        for end in reversed(self._open):
            end.close()
