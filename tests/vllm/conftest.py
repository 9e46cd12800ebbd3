"""Small models of both engines: fake caches behind a real transport, a real scheduler without a model."""

from __future__ import annotations

import importlib.util
import json
import os
import time
import uuid
from dataclasses import replace
from typing import Any

import pytest

os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
os.environ.setdefault("VLLM_USE_V2_MODEL_RUNNER", "0")

if importlib.util.find_spec("vllm") is None:
    collect_ignore_glob = ["test_*.py"]


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

    def decode(self, plane: str, block_ids: Any, start: int, end: int, *what: Any, skip: int = 0) -> None:
        self.before()
        self._layout.decode(plane, block_ids, start, end, *what, skip=skip)
        self.writes.append((plane, start + skip, end - start - skip))


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
        for plane, _, start, end in table.pieces(codec, tokens):
            coded = codec.encode(
                plane.layout.gather(plane.name, ids, start, end), plane.spec, first_token=start
            )
            shape = plane.shape(start, end)
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
        from lynx_ascend.codec import codec_names
        from lynx_ascend.transport.tcp import ClientConfig, TransferClient
        from lynx_ascend.vllm.planes import TransferLimits
        from lynx_ascend.vllm.receiver import PlaneReceiver
        from lynx_ascend.vllm.settings import LynxSettings

        settings = LynxSettings(**settings)
        limits = TransferLimits(table, [table.codec(name) for name in codec_names()], max_tokens)
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


@pytest.fixture
def lab(free_port: Any) -> Any:
    """A `Lab` whose sockets and threads end with the test."""
    laboratory = Lab(free_port)
    yield laboratory
    laboratory.close()


@pytest.fixture
def make_request() -> Any:
    """Builds vLLM requests; keyword arguments other than `params` are SamplingParams."""
    from vllm.sampling_params import SamplingParams
    from vllm.utils.hashing import sha256
    from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
    from vllm.v1.request import Request

    init_none_hash(sha256)
    hasher = get_request_block_hasher(32, sha256)

    def make(req_id: str, prompt: list[int], params: dict[str, Any] | None = None, *, salt: str | None = None,
             **sampling: Any) -> Any:  # fmt: skip
        extra = {"kv_transfer_params": params} if params is not None else None
        sampling = {"temperature": 0.0, "max_tokens": 16, **sampling}
        return Request(
            req_id,
            prompt,
            SamplingParams(extra_args=extra, **sampling),
            None,
            cache_salt=salt,
            block_hasher=hasher,
        )

    return make


@pytest.fixture
def make_handle() -> Any:
    """kv_transfer_params as P answers them, for a prompt; keyword arguments replace values."""
    from lynx_ascend.vllm.params import prompt_digest

    def make(prompt: list[int], **changes: Any) -> dict[str, Any]:
        return {
            "do_remote_prefill": True, "do_remote_decode": False, "transfer_id": uuid.uuid4().hex,
            "generation": 7, "remote_host": "127.0.0.1", "remote_port": 14579, "prompt_tokens": len(prompt),
            "prompt_digest": prompt_digest(prompt), "first_token": None, "codec": "lynx", "max_draft": 64,
            **changes,
        }  # fmt: skip

    return make


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder with the configuration of a model that is never built."""
    folder = tmp_path_factory.mktemp("tiny")
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64,
        "intermediate_size": 128, "num_attention_heads": 2, "num_hidden_layers": 2, "num_key_value_heads": 1,
        "head_dim": 32, "vocab_size": 1000, "max_position_embeddings": 2048, "rms_norm_eps": 1e-5,
        "torch_dtype": "float32", "eos_token_id": 2, "bos_token_id": 1,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    return str(folder)


class Engine:
    """A decode engine's scheduler with a model runner that returns the tokens a test names."""

    BLOCK = 32

    def __init__(self, scheduler: Any) -> None:
        self.scheduler = scheduler
        self.free_at_start = self.free
        self.texts: dict[str, list[int]] = {}
        self.finish: dict[str, Any] = {}
        self.params: dict[str, Any] = {}
        self.last: Any = None

    @property
    def free(self) -> int:
        return int(self.scheduler.kv_cache_manager.block_pool.get_num_free_blocks())

    @property
    def decode(self) -> Any:
        return self.scheduler._decode

    def state(self, req_id: str) -> Any:
        return self.scheduler._states.get(req_id)

    def step(
        self,
        tokens: dict[str, list[int]] | None = None,
        *,
        finished: Any = (),
        ready: Any = (),
        failed: Any = (),
    ) -> Any:
        """Schedule, run, update. `tokens`: what the runner samples for a request, else a token of its own (900...).

        `finished`, `ready`, `failed`: requests that the workers name with this step. Returns the SchedulerOutput.
        """
        from vllm.v1.outputs import KVConnectorOutput, ModelRunnerOutput

        from lynx_ascend.vllm.metadata import LynxWorkerMetadata

        scheduler = self.scheduler
        output = self.last = scheduler.schedule()
        req_ids = list(output.num_scheduled_tokens)
        sampled: list[list[int]] = []
        for n, req_id in enumerate(req_ids):
            request = scheduler.requests[req_id]
            drafts = len(output.scheduled_spec_decode_tokens.get(req_id, []))
            whole = request.num_computed_tokens - drafts >= request.num_tokens
            sampled.append((tokens or {}).get(req_id, [900 + n]) if whole else [])
        report = None
        if ready or failed:
            report = LynxWorkerMetadata(dict.fromkeys(ready, 1), dict.fromkeys(failed, "a test says so"))
        result = scheduler.update_from_output(
            output,
            ModelRunnerOutput(
                req_ids=req_ids,
                req_id_to_index={req_id: n for n, req_id in enumerate(req_ids)},
                sampled_token_ids=sampled,
                kv_connector_output=KVConnectorOutput(
                    finished_recving=set(finished) or None, kv_connector_worker_meta=report
                ),
            ),
        )
        self.outputs = [one for outputs in result.values() for one in outputs.outputs]
        for outputs in result.values():
            for one in outputs.outputs:
                self.texts.setdefault(one.request_id, []).extend(one.new_token_ids)
                if one.finish_reason is not None:
                    assert one.request_id not in self.finish, "finished twice"
                    self.finish[one.request_id] = one.finish_reason.name
                    self.params[one.request_id] = one.kv_transfer_params
        return output

    def load(self, request: Any) -> Any:
        """Add a request, let its anchor come, and return the output of its first scheduled step."""
        self.scheduler.add_request(request)
        output = self.step(finished=[request.request_id])
        assert [r.req_id for r in output.kv_connector_metadata.receives] == [request.request_id]
        return output

    def abort(self, req_id: str) -> None:
        from vllm.v1.request import RequestStatus

        self.scheduler.finish_requests(req_id, RequestStatus.FINISHED_ABORTED)

    def check_empty(self) -> None:
        """Nothing of any request is left: blocks, loads, drafts, times, claims."""
        scheduler = self.scheduler
        assert self.free == self.free_at_start
        assert scheduler.requests == {}
        assert (list(scheduler.waiting), list(scheduler.skipped_waiting), scheduler.running) == ([], [], [])
        assert (scheduler._states, scheduler._times, scheduler._inflight_prefills) == ({}, {}, set())
        decode = self.decode
        assert (decode._loads, decode._claimed, decode.ready, decode.failed) == ({}, {}, set(), set())


@pytest.fixture
def make_engine(tiny_model: str) -> Any:
    """Builds an `Engine` with vLLM's own scheduler behind LynxScheduler."""
    import torch
    from vllm.config import (
        CacheConfig,
        KVTransferConfig,
        ModelConfig,
        ParallelConfig,
        SchedulerConfig,
        VllmConfig,
    )
    from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
    from vllm.v1.structured_output import StructuredOutputManager

    from lynx_ascend.vllm.plugin import register
    from lynx_ascend.vllm.scheduler import LynxScheduler

    register()

    def make(*, blocks: int = 60, budget: int = 512, max_model_len: int = 512, seqs: int = 8) -> Engine:
        cache = CacheConfig(block_size=32, enable_prefix_caching=True)
        cache.num_gpu_blocks = blocks
        config = VllmConfig(
            model_config=ModelConfig(
                model=tiny_model, skip_tokenizer_init=True, dtype="float32", max_model_len=max_model_len
            ),
            cache_config=cache,
            parallel_config=ParallelConfig(worker_cls="lynx_ascend.vllm.worker.LynxCPUWorker"),
            scheduler_config=SchedulerConfig(
                max_num_seqs=seqs, max_num_batched_tokens=budget, max_model_len=max_model_len,
                is_encoder_decoder=False, async_scheduling=False, enable_chunked_prefill=True,
                scheduler_cls="lynx_ascend.vllm.scheduler.LynxScheduler",
            ),
            kv_transfer_config=KVTransferConfig(
                kv_connector="LynxConnector", kv_role="kv_consumer", engine_id="engine"
            ),
        )  # fmt: skip
        group = KVCacheGroupSpec(
            ["layers.0"], FullAttentionSpec(block_size=32, num_kv_heads=1, head_size=32, dtype=torch.float32)
        )
        return Engine(
            LynxScheduler(
                vllm_config=config,
                kv_cache_config=KVCacheConfig(
                    num_blocks=blocks, kv_cache_tensors=[], kv_cache_groups=[group]
                ),
                structured_output_manager=StructuredOutputManager(config),
                block_size=32,
                log_stats=True,
            )
        )

    return make
