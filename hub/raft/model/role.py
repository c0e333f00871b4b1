"""What a member is doing."""

from enum import Enum


class Role(Enum):
    """The states of the paper's figure 4, with the pre-candidate of the thesis."""

    FOLLOWER = "follower"
    PRE_CANDIDATE = "pre-candidate"
    CANDIDATE = "candidate"
    LEADER = "leader"
