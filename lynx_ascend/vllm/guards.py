"""Settings of vLLM that do not go with progressive KV, refused at start-up with what to change."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any

from lynx_ascend.errors import ConfigError

SCHEDULER = "lynx_ascend.vllm.scheduler.LynxScheduler"
WORKERS = ("LynxCPUWorker", "LynxCUDAWorker")


def check_engine(vllm_config: Any, kv_cache_config: Any) -> None:
    """Refuse an engine configuration that would give wrong text, leak blocks or hang.

    Args:
        vllm_config: `VllmConfig`.
        kv_cache_config: `KVCacheConfig`, or None before the caches are sized.

    Raises:
        ConfigError: names the setting and the change.
    """
    transfer = vllm_config.kv_transfer_config
    if transfer.kv_role not in ("kv_producer", "kv_consumer"):
        raise ConfigError(f'kv_role is {transfer.kv_role!r}: use "kv_producer" on P and "kv_consumer" on D')
    _check_classes(vllm_config)
    _check_cache(vllm_config, kv_cache_config)
    if transfer.is_kv_consumer:
        _check_decode(vllm_config)


def check_logits_processors(processors: Iterable[Any]) -> None:
    """Refuse logits processors on a decode engine that vLLM's verification does not apply to drafts.

    Args:
        processors: the instances that the model runner built, those of installed plugins among them.

    Raises:
        ConfigError: names the first that is not vLLM's own.
    """
    for processor in processors:
        if not type(processor).__module__.startswith("vllm."):
            raise ConfigError(
                f"logits processor {_name(type(processor))} is not applied to drafts that are verified: remove it from "
                "the decode engine (--logits-processors, or the package that registers it under vllm.logits_processors)"
            )


def _name(cls: Any) -> str:
    return f"{cls.__module__}.{cls.__qualname__}" if inspect.isclass(cls) else str(cls)


def _check_classes(vllm_config: Any) -> None:
    scheduler = vllm_config.scheduler_config.scheduler_cls
    names = (
        [_name(c) for c in inspect.getmro(scheduler)] if inspect.isclass(scheduler) else [_name(scheduler)]
    )
    if SCHEDULER not in names and not names[0].endswith("LynxScheduler"):
        raise ConfigError(f"LynxConnector needs --scheduler-cls {SCHEDULER} (it is {names[0]})")
    worker = _name(vllm_config.parallel_config.worker_cls)
    if not worker.endswith(WORKERS):
        raise ConfigError(
            "LynxConnector needs --worker-cls lynx_ascend.vllm.worker.LynxCPUWorker (or LynxCUDAWorker); "
            f"it is {worker}"
        )


def _check_cache(vllm_config: Any, kv_cache_config: Any) -> None:
    if str(vllm_config.cache_config.cache_dtype) not in ("auto", "bfloat16", "float16", "float32"):
        raise ConfigError(
            f"--kv-cache-dtype {vllm_config.cache_config.cache_dtype}: Lynx encodes 16- and 32-bit caches; use auto"
        )
    if kv_cache_config is not None and len(kv_cache_config.kv_cache_groups) > 1:
        raise ConfigError(
            f"the model has {len(kv_cache_config.kv_cache_groups)} KV cache groups (sliding window or mamba layers); "
            "add --disable-hybrid-kv-cache-manager, or serve a model with one group"
        )
    if vllm_config.parallel_config.pipeline_parallel_size > 1:
        raise ConfigError("--pipeline-parallel-size above 1 is not supported with LynxConnector yet")
    if getattr(vllm_config.parallel_config, "decode_context_parallel_size", 1) > 1:
        raise ConfigError("--decode-context-parallel-size above 1 is not supported with LynxConnector yet")
    if getattr(vllm_config, "use_v2_model_runner", False):
        raise ConfigError("LynxConnector needs vLLM's first model runner: set VLLM_USE_V2_MODEL_RUNNER=0")


def _check_decode(vllm_config: Any) -> None:
    if vllm_config.scheduler_config.async_scheduling:
        raise ConfigError(
            "a decode engine needs --no-async-scheduling: verification rewrites the last tokens"
        )
    if vllm_config.speculative_config is not None:
        raise ConfigError(
            "remove --speculative-config from the decode engine: the anchor is the draft model, and the verifier is "
            "attached by the worker class"
        )
    if getattr(vllm_config.model_config, "logits_processors", None):
        raise ConfigError(
            "remove --logits-processors from the decode engine: vLLM does not apply them to drafts that are verified"
        )
    if vllm_config.scheduler_config.max_num_batched_tokens < 2:
        raise ConfigError("--max-num-batched-tokens must be at least 2")
