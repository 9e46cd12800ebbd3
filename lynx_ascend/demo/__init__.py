"""`lynx-ascend demo`: a real model answers questions about a real long text, once per codec, on a slow link.

Knows the engines only through the proxy's HTTP and what a request's `kv_transfer_params` tell.
"""
