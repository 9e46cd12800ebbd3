"""What can go wrong in a demo beside what the other rooms raise."""

from __future__ import annotations

from lynx_ascend.errors import LynxError


class DemoError(LynxError):
    """An answer is not what the demo measures: no transfer took place, or the engine refused the request."""
