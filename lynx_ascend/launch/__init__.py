"""P, D and a proxy as child processes of one supervisor: start, wait, watch, and stop without leaving anything."""

from lynx_ascend.launch.child import Child, LaunchError
from lynx_ascend.launch.cluster import Cluster
from lynx_ascend.launch.plan import Launch, make_plan

__all__ = ["Child", "Cluster", "Launch", "LaunchError", "make_plan"]
