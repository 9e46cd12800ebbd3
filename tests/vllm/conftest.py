"""Small models of both engines: fake caches behind a real transport, a real scheduler without a model."""

from __future__ import annotations

import importlib.util
import json
import os
import uuid
from typing import Any

import pytest

from .engine import PROMPT, Engine
from .lab import Lab
from .transfer_run import Run

os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
os.environ.setdefault("VLLM_USE_V2_MODEL_RUNNER", "0")

if importlib.util.find_spec("vllm") is None:
    collect_ignore_glob = ["test_*.py"]


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


@pytest.fixture
def engine(make_engine):
    return make_engine()


@pytest.fixture
def ask(make_request, make_handle):
    """A request with a handle; `handle` changes the handle, the rest are sampling parameters."""

    def make(req_id, prompt=PROMPT, *, handle=None, salt=None, **sampling):
        return make_request(req_id, prompt, make_handle(prompt, **(handle or {})), salt=salt, **sampling)

    return make


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


@pytest.fixture
def run(lab):
    return Run(lab, lab.caches(), lab.caches(fill=-1.0), {"piece_kb": 10})
