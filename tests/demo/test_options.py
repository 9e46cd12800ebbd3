from __future__ import annotations

import pytest

from lynx_ascend.codec import servable_codecs
from lynx_ascend.demo.options import DEFAULT_CODECS, KNOWN_CODECS, Options, cluster_config, free_ports
from lynx_ascend.errors import ConfigError


def test_the_codecs_are_those_of_the_registry():
    assert set(KNOWN_CODECS) == set(servable_codecs())
    assert set(DEFAULT_CODECS) <= set(KNOWN_CODECS)


def test_each_repetition_begins_with_another_codec():
    options = Options()
    orders = [options.order(repetition) for repetition in range(5)]
    assert {order[0] for order in orders} == set(options.codecs)
    assert all(set(order) == set(options.codecs) for order in orders)


@pytest.mark.parametrize(
    ("codecs", "message"),
    [(("lynx", "int8"), "both needed"), (("lynx", "lynx-int8", "zip"), "zip"), (("lynx", "lynx"), "once")],
)
def test_codecs_that_allow_no_check_are_refused(codecs, message):
    with pytest.raises(ConfigError, match=message):
        Options(codecs=codecs)


def test_the_cluster(tmp_path):
    config = cluster_config(Options(link_mbps=25, prompt_tokens=5000), tmp_path)
    assert config.dtype == "float32"
    assert config.transfer.link_mbps == 25
    assert config.max_model_len >= 5065
    assert not config.proxy.fallback
    assert cluster_config(Options(), tmp_path).max_model_len == 4096


def test_ports_differ():
    assert len(set(free_ports(4))) == 4
