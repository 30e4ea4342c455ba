"""Bounds and deadlines that decisions use. Times in seconds, sizes in bytes unless named otherwise."""

SLOTS = 32
"""Generations side by side on one instance, unless its placement says otherwise: as many as the MLX engine computes at
once. Fewer would keep short ones, which it lets pass, in the queue behind long ones."""
CONTEXT_TOKENS = 8192
"""Context that memory is reserved for, unless the placement says otherwise or the model has less."""
SLOTS_MOST = 1024
CONTEXT_MOST = 2**31
NODES_MOST = 256
"""What a placement may ask for at most; no model and no cluster comes near any of them."""
QUEUE_PER_MODEL = 2000
"""Generations that may wait for one model, unless the master's settings say otherwise; the next is refused."""
QUEUE_RESERVED = 10
"""One place of so many in a queue is for clients of whom none waits yet: one client alone cannot fill it."""
ROOM_UNKNOWN = 5
"""Seconds after which one who was refused should come again, where nothing tells how long a generation takes."""
ROOM_MOST = 60
"""The most that is said instead."""
IDLE_MOST = 365 * 86_400.0
"""The longest time that an idle model can be told to stay; whoever wants more wants it to stay."""
IDLE_UNPLACED = 60.0
"""What was said of a model that is not there holds for so long: the request that it came with may be on its way."""

QUEUED = 1800.0
"""A generation waits at most this long for a slot; bringing a cold model onto a disk is part of it."""
RUNNING = 4 * 3600.0
"""A generation takes at most this long; a runner that makes no progress is stopped long before, by its worker."""
UNREAD = 20.0
"""A generation that needs a reader goes on for so long without one: an API process that was killed can be started again
meanwhile, and its clients come back. An API process shows every two seconds that it lives."""
CANCELLING = 10.0
"""A runner that was told to stop a generation has this long to say so."""

RUNNER_WAITING = 3600.0
"""From placement, a failure or a stop to a started process; covers bringing the model onto the disk."""
REMOVING = 120.0
"""From the wish that a model leaves a node's disk to the word of its worker; most of it is for a slow disk."""
RUNNER_CONNECTING = 60.0
RUNNER_JOINING = 60.0
"""From the first rank's process that waits for its peers until all are connected."""
RUNNER_LOADING = 1800.0
RUNNER_WARMING = 300.0
RUNNER_FAILURES = 5
"""Starts in a row that fail before the instance is given up."""
BACKOFF_FIRST = 1.0
BACKOFF_MOST = 30.0
LINKS_SETTLE = 15.0
"""After a node has joined, this long no request ends for want of links: they are being measured."""
FAILURE_REMEMBERED = 30.0
"""For this long a request for a model that could not be loaded is refused at once, with the reason."""

NODE_SILENT = 10.0
"""A node that shows no beat for this long is lost; beats come every two seconds."""
AVAILABLE_CHANGE = 0.05
"""Share of a node's memory by which its free memory must move to be an event."""

HEADROOM_PERCENT = 110
"""Weights and KV cache times this must fit: a 230 GB model does not run on a 256 GB machine."""
HEADROOM_PERCENT_VLLM = 130
"""vLLM has its own buffers besides."""
FASTER = 1.1
"""An engine counts as faster than another if it was measured so many times as fast: less is noise."""
UNIFIED_SHARE = 0.75
"""Of memory shared with a GPU, the part that models may fill."""

NODES_FEW = 12
"""Up to so many nodes a placement looks at every group of them: 924 at most of one size."""
CANDIDATES_MOST = 200
"""With more nodes, groups of one size that it looks at, the best ones first."""


def backoff(failures: int) -> float:
    """Seconds to wait before the start after `failures` failed ones in a row: 1, 2, 4 up to 30."""
    return min(BACKOFF_MOST, BACKOFF_FIRST * 2.0 ** max(0, failures - 1))
