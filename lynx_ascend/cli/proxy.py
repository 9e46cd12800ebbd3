"""`lynx-ascend proxy`: the HTTP front alone, for engines that run elsewhere."""

from __future__ import annotations

import typer


def proxy(
    prefill: list[str] = typer.Option(
        ..., help="Base URL of a prefill engine; repeat it for several.", metavar="URL"
    ),
    decode: list[str] = typer.Option(
        ..., help="Base URL of a decode engine; repeat it for several.", metavar="URL"
    ),
    host: str = typer.Option("127.0.0.1", help="Address to listen on."),
    port: int = typer.Option(8000, help="Port to listen on.", min=1, max=65535),
    fallback: bool = typer.Option(True, help="While no prefill engine is there, decode engines work alone."),
    request_timeout_s: float = typer.Option(3600.0, help="The longest a request may take, in seconds."),
) -> None:
    """Run the proxy alone: the OpenAI API in front of prefill and decode engines.

    Example:  lynx-ascend proxy --prefill http://10.0.0.1:8100 --decode http://10.0.0.2:8200
    """
    from lynx_ascend.proxy import ProxyConfig
    from lynx_ascend.proxy.serve import serve

    serve(
        ProxyConfig(
            prefill=tuple(prefill),
            decode=tuple(decode),
            host=host,
            port=port,
            fallback=fallback,
            request_timeout_s=request_timeout_s,
        )
    )
