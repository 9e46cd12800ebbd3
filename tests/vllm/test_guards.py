"""Engine settings that are refused at start-up, each with the change to make."""

from __future__ import annotations

from types import SimpleNamespace as Space

import pytest

from lynx_ascend.errors import ConfigError
from lynx_ascend.vllm.guards import SCHEDULER, check_engine, check_logits_processors
from lynx_ascend.vllm.scheduler import LynxScheduler


def config(**changes):
    """An engine that is accepted; `changes` are values by dotted path with __ for the dot."""
    role = changes.pop("kv_role", "kv_consumer")
    made = Space(
        kv_transfer_config=Space(kv_role=role, is_kv_consumer=role != "kv_producer"),
        scheduler_config=Space(scheduler_cls=SCHEDULER, async_scheduling=False, max_num_batched_tokens=512),
        parallel_config=Space(
            worker_cls="lynx_ascend.vllm.worker.LynxCPUWorker",
            pipeline_parallel_size=1,
            decode_context_parallel_size=1,
        ),
        cache_config=Space(cache_dtype="auto"),
        model_config=Space(logits_processors=None),
        speculative_config=None,
        use_v2_model_runner=False,
    )
    for path, value in changes.items():
        *parents, name = path.split("__")
        owner = made
        for parent in parents:
            owner = getattr(owner, parent)
        setattr(owner, name, value)
    return made


def groups(count):
    return Space(kv_cache_groups=[Space()] * count)


class Derived(LynxScheduler):
    pass


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"kv_role": "kv_producer"},
        {"kv_role": "kv_producer", "scheduler_config__async_scheduling": True},
        {"kv_role": "kv_producer", "speculative_config": Space()},
        {"scheduler_config__scheduler_cls": LynxScheduler},
        {"scheduler_config__scheduler_cls": Derived},
        {"parallel_config__worker_cls": "lynx_ascend.vllm.worker.LynxCUDAWorker"},
        {"cache_config__cache_dtype": "bfloat16"},
    ],
    ids=str,
)
def test_accepted(changes):
    check_engine(config(**changes), groups(1))
    check_engine(config(**changes), None)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kv_role": "kv_both"}, "kv_role"),
        ({"kv_role": None}, "kv_role"),
        ({"scheduler_config__scheduler_cls": None}, "--scheduler-cls"),
        ({"scheduler_config__scheduler_cls": "vllm.v1.core.sched.scheduler.Scheduler"}, "--scheduler-cls"),
        ({"scheduler_config__scheduler_cls": Space}, "--scheduler-cls"),
        ({"parallel_config__worker_cls": "auto"}, "--worker-cls"),
        ({"parallel_config__worker_cls": "vllm.v1.worker.cpu_worker.CPUWorker"}, "--worker-cls"),
        ({"cache_config__cache_dtype": "fp8"}, "--kv-cache-dtype"),
        ({"parallel_config__pipeline_parallel_size": 2}, "--pipeline-parallel-size"),
        ({"parallel_config__decode_context_parallel_size": 2}, "--decode-context-parallel-size"),
        ({"use_v2_model_runner": True}, "VLLM_USE_V2_MODEL_RUNNER"),
        ({"scheduler_config__async_scheduling": True}, "--no-async-scheduling"),
        ({"speculative_config": Space()}, "--speculative-config"),
        ({"scheduler_config__max_num_batched_tokens": 1}, "--max-num-batched-tokens"),
        ({"model_config__logits_processors": ["my.Processor"]}, "--logits-processors"),
    ],
    ids=str,
)
def test_refused(changes, message):
    with pytest.raises(ConfigError, match=message):
        check_engine(config(**changes), groups(1))


def test_more_than_one_cache_group_is_refused():
    with pytest.raises(ConfigError, match="hybrid"):
        check_engine(config(), groups(2))


def test_logits_processors_of_others_are_refused():
    """Those of installed packages too: vLLM loads them by entry point, and verification would skip them."""
    from vllm.v1.sample.logits_processor import MinTokensLogitsProcessor

    class Banner:
        pass

    own = MinTokensLogitsProcessor.__new__(MinTokensLogitsProcessor)
    check_logits_processors([own])
    with pytest.raises(ConfigError, match="Banner"):
        check_logits_processors([own, Banner()])
