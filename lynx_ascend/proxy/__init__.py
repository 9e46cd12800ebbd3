"""The HTTP front: the OpenAI API for clients, the contract of vLLM's toy proxy towards P and D.

Knows neither torch nor vLLM; what it hands from P to D is opaque to it.
"""

from lynx_ascend.proxy.app import create_app
from lynx_ascend.proxy.config import ProxyConfig

__all__ = ["ProxyConfig", "create_app"]
