from __future__ import annotations

import json
from pathlib import Path

import pytest

from lynx_ascend.config import parse_config
from lynx_ascend.errors import ConfigError
from lynx_ascend.launch import make_plan
from lynx_ascend.launch.plan import private_files, transfer_config
from lynx_ascend.models.calibrations import find_calibration

PRIVATE = Path("/private")
SHIPPED = {"calibration": find_calibration("smollm2")}


def option(command: tuple[str, ...], name: str) -> str:
    return command[command.index(name) + 1]


@pytest.fixture(autouse=True)
def _no_token(monkeypatch):
    monkeypatch.delenv("LYNX_TOKEN", raising=False)


@pytest.mark.parametrize("role", ["prefill", "decode"])
def test_both_engines_get_the_calibration(role, tmp_path):
    def chosen(model, **transfer):
        config = parse_config({"model": model, "transfer": transfer})
        return transfer_config(config, role)["kv_connector_extra_config"].get("calibration")

    assert SHIPPED["calibration"] is not None
    assert chosen("smollm2") == SHIPPED["calibration"]
    assert chosen("smollm2", calibration="none") is None
    assert chosen("smollm2", calibration=str(tmp_path / "own.yaml")) == str(tmp_path / "own.yaml")
    assert chosen(str(tmp_path)) is None


def test_engines_on_a_cpu(tmp_path):
    config = parse_config(
        {
            "model": "smollm2",
            "device": "cpu",
            "dtype": "float32",
            "max_model_len": 4096,
            "transfer": {"link_mbps": 200, "fault_injection": True},
            "decode": {"threads": 4, "args": ["--block-size", "16"], "env": {"OMP_NUM_THREADS": "3"}},
        }
    )
    prefill, decode, proxy = make_plan(config, str(tmp_path), PRIVATE)
    assert [launch.name for launch in (prefill, decode, proxy)] == ["prefill", "decode", "proxy"]
    assert option(prefill.command, "-m") == "vllm.entrypoints.openai.api_server"
    assert option(prefill.command, "--model") == str(tmp_path)
    assert option(prefill.command, "--served-model-name") == "smollm2"
    assert option(prefill.command, "--dtype") == "float32"
    assert option(prefill.command, "--worker-cls") == "lynx_ascend.vllm.worker.LynxCPUWorker"
    assert option(prefill.command, "--scheduler-cls") == "lynx_ascend.vllm.scheduler.LynxScheduler"
    assert "--no-async-scheduling" in decode.command
    assert "--enforce-eager" in decode.command
    transfer = json.loads(option(prefill.command, "--kv-transfer-config"))
    assert transfer == {
        "kv_connector": "LynxConnector",
        "kv_role": "kv_producer",
        "kv_connector_extra_config": {
            "link_mbps": 200.0,
            "fault_injection": True,
            **SHIPPED,
            "host": "127.0.0.1",
            "port": 14579,
        },
    }
    transfer = json.loads(option(decode.command, "--kv-transfer-config"))
    assert transfer["kv_role"] == "kv_consumer"
    assert transfer["kv_connector_extra_config"] == {
        "link_mbps": 200.0,
        "fault_injection": True,
        **SHIPPED,
    }
    assert prefill.env["OMP_NUM_THREADS"] == "2"
    assert prefill.env["OMP_WAIT_POLICY"] == "passive"
    assert prefill.env["HF_HUB_OFFLINE"] == "1"
    assert prefill.env["VLLM_CPU_OMP_THREADS_BIND"] == "nobind"
    assert option(prefill.command, "--distributed-executor-backend").endswith("UniProcExecutor")
    assert decode.env["OMP_NUM_THREADS"] == "3"  # the user's own wins
    assert decode.command[-2:] == ("--block-size", "16")  # and comes last
    assert prefill.ports == (("127.0.0.1", 8100), ("127.0.0.1", 14579))
    assert prefill.health_url == "http://127.0.0.1:8100/health"
    assert option(proxy.command, "--prefill") == "http://127.0.0.1:8100"
    assert option(proxy.command, "--decode") == "http://127.0.0.1:8200"


@pytest.mark.parametrize("args", [["--tensor-parallel-size", "2"], ["-tp=2"]])
def test_several_ranks_keep_vllms_executor(args):
    config = parse_config({"model": "a", "device": "cpu", "prefill": {"args": args}})
    prefill, decode, _ = make_plan(config, "a", PRIVATE)
    assert "--distributed-executor-backend" not in prefill.command
    assert "--distributed-executor-backend" in decode.command


def test_engines_on_an_accelerator_keep_their_defaults():
    launch = make_plan(parse_config({"model": "owner/name", "device": "cuda"}), "owner/name", PRIVATE)[0]
    assert option(launch.command, "--worker-cls") == "lynx_ascend.vllm.worker.LynxCUDAWorker"
    for absent in ("--block-size", "--enforce-eager", "--max-model-len"):
        assert absent not in launch.command
    assert "HF_HUB_OFFLINE" not in launch.env
    assert "VLLM_CPU_KVCACHE_SPACE" not in launch.env


def test_an_npu_is_refused_while_there_is_no_worker_for_it():
    with pytest.raises(ConfigError, match="npu"):
        make_plan(parse_config({"model": "owner/name", "device": "npu"}), "owner/name", PRIVATE)


def test_a_token_is_on_no_command_line():
    config = parse_config({"model": "a", "transfer": {"token": "secret"}, "prefill": {"kv_host": "0.0.0.0"}})
    for launch in make_plan(config, "a", PRIVATE):
        assert "secret" not in " ".join([*launch.command, *launch.env.values()])
    prefill = make_plan(config, "a", PRIVATE)[0]
    assert option(prefill.command, "--config") == "/private/prefill.yaml"
    content = json.loads(private_files(config)["prefill.yaml"])
    extra = content["kv-transfer-config"]["kv_connector_extra_config"]
    # Bound to every address, announced by one that D on this machine reaches.
    assert extra == {
        "token": "secret",
        "host": "0.0.0.0",
        "announce_host": "127.0.0.1",
        "port": 14579,
    }


def test_a_wildcard_address_is_reached_through_loopback():
    config = parse_config({"model": "a", "decode": {"host": "0.0.0.0"}, "prefill": {"host": "::1"}})
    prefill, decode, _ = make_plan(config, "a", PRIVATE)
    assert decode.health_url == "http://127.0.0.1:8200/health"
    assert prefill.health_url == "http://[::1]:8100/health"


@pytest.mark.e2e  # importing vLLM takes long
def test_vllm_reads_the_private_file(tmp_path):
    """The engine's own reader must turn it into the option that a command line would have."""
    argparse_utils = pytest.importorskip("vllm.utils.argparse_utils")
    config = parse_config({"model": "a", "transfer": {"token": "secret"}})
    (file := tmp_path / "prefill.yaml").write_text(private_files(config)["prefill.yaml"])
    parser = argparse_utils.FlexibleArgumentParser()
    parser.add_argument("--config")
    parser.add_argument("--kv-transfer-config", type=json.loads)
    parsed = parser.parse_args(["--config", str(file)])
    assert parsed.kv_transfer_config["kv_connector_extra_config"]["token"] == "secret"
