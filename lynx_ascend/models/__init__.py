"""Small real models without a model hub: known by name, made once, kept in the user's cache folder.

Knows nothing of engines, codecs or sockets; torch and transformers run in a child process only.
"""

from lynx_ascend.models.catalog import CATALOG, ModelSpec
from lynx_ascend.models.prepare import prepare_model
from lynx_ascend.models.resolve import model_path, resolve_model

__all__ = ["CATALOG", "ModelSpec", "model_path", "prepare_model", "resolve_model"]
