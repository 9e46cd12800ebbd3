"""kv_connector_extra_config: every key is checked."""

from __future__ import annotations

import math
from dataclasses import fields

import pytest

from lynx_ascend.errors import ConfigError
from lynx_ascend.vllm.settings import LynxSettings

WRONG_TYPES = {
    "str": [5, None, True, ["a"]],
    "int": [1.5, "5", True, None],
    "float": ["5", True, None],
    "bool": [1, "true", None],
    "float | None": ["5", True],
    "str | None": [5, True],
    "tuple[str, ...] | None": ["host", [5], 5],
}


def read(**extra):
    return LynxSettings.from_extra_config(extra)


def test_no_key_is_needed():
    assert read() == LynxSettings()


@pytest.mark.parametrize("field", fields(LynxSettings), ids=lambda field: field.name)
def test_wrong_types_name_the_key(field):
    for value in WRONG_TYPES[str(field.type)]:
        with pytest.raises(ConfigError, match=f"'{field.name}'"):
            read(**{field.name: value})


@pytest.mark.parametrize(
    ("key", "values"),
    [
        ("codec", ["zip", ""]),
        ("max_draft", [0, 128, -1]),
        ("port", [0, 65536]),
        ("host", ["0.0.0.0", "10.0.0.1"]),
        ("staging_mb", [0, -5]),
        ("piece_kb", [0]),
        ("lease_s", [0, -1.0, math.nan]),
        ("deadline_s", [0, math.nan]),
        ("progress_s", [0, math.nan]),
        ("link_mbps", [0, -1, math.nan]),
    ],
)
def test_values_out_of_range_name_the_key(key, values):
    for value in values:
        with pytest.raises(ConfigError, match=key):
            read(**{key: value})


def test_an_unknown_key_gets_a_hint():
    with pytest.raises(ConfigError, match="did you mean 'max_draft'"):
        read(max_drafts=4)
    with pytest.raises(ConfigError, match="known keys: host"):
        read(zzzzz=4)


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_a_wildcard_is_bound_but_never_announced(host):
    with pytest.raises(ConfigError, match="announce_host"):
        read(host=host, token="secret")
    with pytest.raises(ConfigError, match="announce_host"):
        read(host="10.0.0.1", token="secret", announce_host=host)
    assert read(host=host, token="secret", announce_host="prefill-0").announced_host == "prefill-0"
    assert read(host="10.0.0.1", token="secret").announced_host == "10.0.0.1"


def test_values_are_converted():
    settings = read(
        lease_s=5, allowed_hosts=["a", "b"], link_mbps=100, host="10.0.0.1", token="secret", calibration=None
    )
    assert (settings.lease_s, settings.link_mbps) == (5.0, 100.0)
    assert isinstance(settings.lease_s, float)
    assert settings.allowed_hosts == ("a", "b")
    assert settings.calibration is None
