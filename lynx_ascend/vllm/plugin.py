"""The entry point `vllm.general_plugins`: makes the name LynxConnector known to vLLM. Imports nothing heavy."""

from __future__ import annotations


def register() -> None:
    """Register the connector; called by vLLM in every process, more than once."""
    from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory

    if "LynxConnector" not in KVConnectorFactory._registry:
        KVConnectorFactory.register_connector("LynxConnector", "lynx_ascend.vllm.connector", "LynxConnector")
