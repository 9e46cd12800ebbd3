from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from lynx_ascend.config import TransferConfig, load_config, parse_config
from lynx_ascend.errors import ConfigError

EXAMPLE = Path(__file__).parents[1] / "deploy" / "lynx.yaml"


def test_the_example_is_valid_and_says_the_defaults():
    assert load_config(EXAMPLE).model == "smollm2"
    plain, example = parse_config({"model": "smollm2"}), load_config(EXAMPLE)
    assert (example.prefill, example.decode, example.proxy) == (plain.prefill, plain.decode, plain.proxy)
    assert example.ready_timeout_s == plain.ready_timeout_s


def test_the_example_with_every_line_uncommented_is_valid(tmp_path):
    import re

    text = re.sub(r"^(\s*)# (\w+: )", r"\1\2", EXAMPLE.read_text(), flags=re.MULTILINE)
    file = tmp_path / "lynx.yaml"
    file.write_text(text)
    config = load_config(file)
    assert config.transfer.link_mbps == 200
    assert config.prefill.args == ["--seed", "0"]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"model": "a", "prefil": {}}, "unknown key prefil; did you mean prefill?"),
        (
            {"model": "a", "prefill": {"kvport": 3}},
            "unknown key prefill.kvport; did you mean kv_port or port?",
        ),
        ({"model": "a", "decode": {"kv_port": 3}}, "unknown key decode.kv_port"),
        ({"model": "a", "transfer": {"zzz": 3}}, "unknown key transfer.zzz; known here: codec, max_draft"),
        ({"model": "a", 5: 3}, "unknown key 5"),
        ({"model": "a", "prefill": {"port": "x"}}, "prefill.port: expected `int`, got `str`"),
        ({"model": "a", "prefill": {"port": 0}}, "prefill.port: expected `int` >= 1"),
        ({"model": "a", "prefill": []}, "prefill: expected `object`, got `array`"),
        ({"model": "a", "transfer": {"max_draft": 128}}, "transfer.max_draft: expected `int` <= 127"),
        ({"model": "a", "device": "tpu"}, "device: invalid enum value 'tpu'"),
        ({"model": "a", "decode": {"port": 8000}}, "decode.port and proxy.port are both 8000"),
        ({"model": "a", "prefill": {"kv_host": "0.0.0.0"}}, "set transfer.token or LYNX_TOKEN"),
        ({}, "missing required field `model`"),
        ([], "must hold a mapping"),
        (None, "must hold a mapping"),
    ],
)
def test_what_is_refused(data, message, monkeypatch):
    monkeypatch.delenv("LYNX_TOKEN", raising=False)
    with pytest.raises(ConfigError) as error:
        parse_config(data)
    assert message in str(error.value)


def test_empty_sections_mean_defaults():
    assert parse_config({"model": "a", "transfer": None}) == parse_config({"model": "a"})


def test_the_token_may_come_from_the_environment(monkeypatch):
    monkeypatch.setenv("LYNX_TOKEN", "secret")
    config = parse_config({"model": "a", "prefill": {"kv_host": "0.0.0.0"}})
    assert config.token == "secret"
    assert parse_config({"model": "a", "transfer": {"token": "own"}}).token == "own"


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read"):
        load_config(tmp_path / "absent.yaml")
    bad = tmp_path / "bad.yaml"
    bad.write_text("a: [")
    with pytest.raises(ConfigError, match="is not YAML"):
        load_config(bad)
    bad.write_text("modle: x")
    with pytest.raises(ConfigError, match=r"bad\.yaml: unknown key modle; did you mean model\?"):
        load_config(bad)


def test_the_transfer_section_has_the_connector_s_keys():
    settings = pytest.importorskip("lynx_ascend.vllm.settings")
    known = {field.name for field in dataclasses.fields(settings.LynxSettings)}
    assert set(TransferConfig.__struct_fields__) == known - {"host", "announce_host", "port"}
