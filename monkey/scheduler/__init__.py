"""The scheduler: which queued job goes to which host, as pure functions. Input and output live in ``monkey.core``.

``Queue`` holds what waits, ``decide`` looks at it and at the hosts and says what goes where and why the rest waits.
Nothing here reads a clock, a file or the store: the same input gives the same answer.
"""

from monkey.scheduler.deciding import Decision, decide
from monkey.scheduler.needs import HostView, Need, Placement, Waiting, Wave, shape_of
from monkey.scheduler.policies import DEFAULT_POLICY, POLICIES, Policy, policy_named
from monkey.scheduler.queue import LaneKey, Queue, lane_of

__all__ = [
    "DEFAULT_POLICY",
    "POLICIES",
    "Decision",
    "HostView",
    "LaneKey",
    "Need",
    "Placement",
    "Policy",
    "Queue",
    "Waiting",
    "Wave",
    "decide",
    "lane_of",
    "policy_named",
    "shape_of",
]
