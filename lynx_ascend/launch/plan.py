"""From the configuration to the three command lines. Pure: nothing is started and nothing is written here."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from lynx_ascend.config import LOOPBACK, WILDCARD, ClusterConfig, DecodeConfig, EngineConfig, PrefillConfig
from lynx_ascend.launch.device import WORKERS, find_device
from lynx_ascend.models.calibrations import find_calibration

CONNECTOR = "LynxConnector"
NO_CALIBRATION = "none"  # the defaults, also for a model that has one
# The worker in the engine's own process: vLLM's default for CPUs puts it into another one and both spin while they wait
# for each other, which costs half a core of the two that small machines have. For one rank only.
EXECUTOR = "vllm.v1.executor.uniproc_executor.UniProcExecutor"
_PARALLEL = ("--tensor-parallel-size", "-tp", "--distributed-executor-backend")
SCHEDULER = "lynx_ascend.vllm.scheduler.LynxScheduler"


@dataclass(frozen=True, slots=True)
class Launch:
    """One process. `ports` are (host, port) that it will listen on; `env` is added to the supervisor's own."""

    name: str
    command: tuple[str, ...]
    health_url: str
    env: dict[str, str] = field(default_factory=dict)
    ports: tuple[tuple[str, int], ...] = ()


def make_plan(config: ClusterConfig, model: str, private: Path) -> list[Launch]:
    """The launches of P, D and the proxy, in the order of starting.

    `model` is what `resolve_model` gave; `private` is the folder of the files that `private_files` asks for.
    """
    device = find_device(config.device)
    return [
        _engine(config, config.prefill, "prefill", model, device, private),
        _engine(config, config.decode, "decode", model, device, private),
        _proxy(config),
    ]


def transfer_config(config: ClusterConfig, role: str) -> dict[str, Any]:
    """vLLM's `--kv-transfer-config` for `prefill` or `decode`."""
    extra = msgspec.to_builtins(config.transfer)
    if (calibration := _calibration(config)) is not None:
        extra["calibration"] = calibration
    else:
        extra.pop("calibration", None)
    if config.token:
        extra["token"] = config.token
    if role == "prefill":
        extra |= {"host": config.prefill.kv_host, "port": config.prefill.kv_port}
        if config.prefill.kv_host in WILDCARD:
            extra["announce_host"] = LOOPBACK[0]  # D runs on this machine
    return {
        "kv_connector": CONNECTOR,
        "kv_role": "kv_producer" if role == "prefill" else "kv_consumer",
        "kv_connector_extra_config": extra,
    }


def _calibration(config: ClusterConfig) -> str | None:
    """The file that both engines read: what the configuration names, else what ships for the model."""
    asked = config.transfer.calibration
    if asked is None:
        return find_calibration(config.model)
    return None if asked == NO_CALIBRATION else str(Path(asked).expanduser().absolute())


def private_files(config: ClusterConfig) -> dict[str, str]:
    """Files (name to content) that must be readable by their owner alone, because a command line is public.

    JSON, which is YAML too: what vLLM's `--config` reads.
    """
    if not config.token:
        return {}
    return {
        f"{role}.yaml": json.dumps({"kv-transfer-config": transfer_config(config, role)})
        for role in ("prefill", "decode")
    }


def _engine(
    config: ClusterConfig,
    engine: PrefillConfig | DecodeConfig,
    role: str,
    model: str,
    device: str,
    private: Path,
) -> Launch:
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server"]
    command += ["--model", model, "--served-model-name", config.served_model_name or config.model]
    command += ["--host", engine.host, "--port", str(engine.port), "--dtype", config.dtype]
    command += ["--scheduler-cls", SCHEDULER, "--worker-cls", WORKERS[device], "--no-async-scheduling"]
    if config.max_model_len:
        command += ["--max-model-len", str(config.max_model_len)]
    block_size = config.block_size or (32 if device == "cpu" else None)
    if block_size:
        command += ["--block-size", str(block_size)]
    if device == "cpu":
        # Eager: compiling takes minutes and gains little here. Small chunks keep a long prompt's memory low.
        command += ["--enforce-eager", "--max-num-batched-tokens", "512"]
        if not any(arg.split("=")[0] in _PARALLEL for arg in engine.args):
            command += ["--distributed-executor-backend", EXECUTOR]
    if config.token:
        command += ["--config", str(private / f"{role}.yaml")]
    else:
        command += ["--kv-transfer-config", json.dumps(transfer_config(config, role))]
    ports = [(engine.host, engine.port)]
    if isinstance(engine, PrefillConfig):
        ports.append((engine.kv_host, engine.kv_port))
    return Launch(
        name=role,
        command=(*command, *engine.args),
        health_url=f"{_url(engine.host, engine.port)}/health",
        env=_environment(engine, model, device) | engine.env,
        ports=tuple(ports),
    )


def _environment(engine: EngineConfig, model: str, device: str) -> dict[str, str]:
    env = {"PYTHONUNBUFFERED": "1", "VLLM_USE_V2_MODEL_RUNNER": "0", "VLLM_NO_USAGE_STATS": "1"}
    if Path(model).is_dir():
        env["HF_HUB_OFFLINE"] = "1"  # everything is there: no look-ups, no time-outs
    if device == "cpu":
        env |= {
            "VLLM_CPU_KVCACHE_SPACE": str(engine.kv_cache_gb),
            # Two engines would otherwise be bound to the same cores.
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            "OMP_NUM_THREADS": str(engine.threads),
            # Spinning at a barrier starves whoever it waits for when the cores are shared: 20 times slower steps.
            "OMP_WAIT_POLICY": "passive",
        }
    return env


def _proxy(config: ClusterConfig) -> Launch:
    listen = config.proxy
    command = [sys.executable, "-m", "lynx_ascend.cli", "proxy"]
    command += ["--prefill", _url(config.prefill.host, config.prefill.port)]
    command += ["--decode", _url(config.decode.host, config.decode.port)]
    command += ["--host", listen.host, "--port", str(listen.port)]
    command.append("--fallback" if listen.fallback else "--no-fallback")
    return Launch(
        name="proxy",
        command=tuple(command),
        health_url=f"{_url(listen.host, listen.port)}/health",
        env={"PYTHONUNBUFFERED": "1"},
        ports=((listen.host, listen.port),),
    )


def _url(host: str, port: int) -> str:
    """Where a server that binds `host` is reached from this machine."""
    if host in WILDCARD:
        host = LOOPBACK[0]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
