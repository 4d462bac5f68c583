"""The life of a request as one table: where it can be, what can happen to it, and what is then done.

What follows holds whatever a plan, a worker or a client does, because nothing but this table moves a
request from one phase to another:

- It begins in PREPARING, and every way leads through CLOSING to GONE. A request that was accepted is
  told its end once, on the one step that enters CLOSING; only a cancelled one is told nothing, for there
  is nobody who would hear it.
- Pages are reserved on the one step that enters RUNNING, and given back on the one that enters GONE:
  workers may still write into them while it is CLOSING.
- CLOSING takes everything that can still happen and does nothing: a Walk that ended on its way, a cancel
  that crossed the end, a deadline that comes too late, something that its client still wrote.
- A client may write its streams from the moment it has asked: workers know of the request before.
- A pair that is not here cannot happen where the runtime is right. If it does all the same, it is logged
  and fails its own request; FAILED is here for every phase but GONE, and nothing is heard of those that
  are GONE.

What becomes of workers, caches and streams in the meantime is no phase: a request holds what it holds
(``Life.holders``, ``Life.pages``), and whoever lets go of something says so.
"""

from __future__ import annotations

from enum import Enum


class Phase(Enum):
    """Where a request is."""

    PREPARING = "preparing"
    """It is not known yet how much it needs."""
    WAITING = "waiting"
    """Until its caches can be reserved, all of them."""
    RUNNING = "running"
    """Its tracks have started."""
    CLOSING = "closing"
    """Its client has its end; workers still let go of it."""
    GONE = "gone"
    """Nothing of it is left anywhere."""


class Event(Enum):
    """What can happen to a request."""

    PREPARED = "prepared"
    """Its sizes are known, and it can fit."""
    ADMITTED = "admitted"
    """It is the first in the queue, and there is room for it."""
    WALKED = "walked"
    """A Walk or a fork that its plan asked for has ended, or a Walk broke."""
    WRITTEN = "written"
    """Its client has written to a stream, or ended one."""
    TAKEN = "taken"
    """Of what its client wrote a track has read some."""
    FINISHED = "finished"
    """All its tracks have returned."""
    FAILED = "failed"
    """It was refused, its plan or a component raised, or the server stops."""
    CANCELLED = "cancelled"
    """Its client has left."""
    EXPIRED = "expired"
    """It took longer than it may, or its client was silent for longer."""
    LOST = "lost"
    """A worker that held something of it is gone."""
    LET_GO = "let go"
    """A worker has nothing of it any more."""
    RELEASED = "released"
    """It is CLOSING, and no worker has anything of it."""


class Act(Enum):
    """What is done."""

    LINE_UP = "line up"
    """It joins the queue."""
    LEAVE_QUEUE = "leave the queue"
    RESERVE = "reserve"
    """Its pages, of every cache."""
    START = "start"
    """All its tracks."""
    RESUME = "resume"
    """Tell the plan what came of what it asked for, and do what it asks for next."""
    PASS_ON = "pass on"
    """What its client wrote, to the worker that reads it."""
    TELL_TAKEN = "tell what is taken"
    TELL_END = "tell its end"
    TELL_FAULT = "tell its fault"
    CLOSE = "close"
    """Its tracks, and tell every worker that holds something to let go."""
    GIVE_BACK = "give back"
    """Its pages; nothing is known of it any more."""
    ADMIT = "admit"
    """Whoever in the queue has room now."""


_FAULT = (Act.TELL_FAULT, Act.CLOSE)
_LEAVE = (Act.LEAVE_QUEUE, Act.TELL_FAULT, Act.CLOSE, Act.ADMIT)
_NOTHING = ()

TABLE: dict[tuple[Phase, Event], tuple[Phase, tuple[Act, ...]]] = {
    (Phase.PREPARING, Event.WALKED): (Phase.PREPARING, (Act.RESUME,)),
    (Phase.PREPARING, Event.WRITTEN): (Phase.PREPARING, (Act.PASS_ON,)),
    (Phase.PREPARING, Event.PREPARED): (Phase.WAITING, (Act.LINE_UP, Act.ADMIT)),
    (Phase.PREPARING, Event.FAILED): (Phase.CLOSING, _FAULT),
    (Phase.PREPARING, Event.CANCELLED): (Phase.CLOSING, (Act.CLOSE,)),
    (Phase.PREPARING, Event.EXPIRED): (Phase.CLOSING, _FAULT),
    (Phase.PREPARING, Event.LOST): (Phase.CLOSING, _FAULT),
    #
    (Phase.WAITING, Event.ADMITTED): (Phase.RUNNING, (Act.LEAVE_QUEUE, Act.RESERVE, Act.START)),
    (Phase.WAITING, Event.WRITTEN): (Phase.WAITING, (Act.PASS_ON,)),
    (Phase.WAITING, Event.FAILED): (Phase.CLOSING, _LEAVE),
    (Phase.WAITING, Event.CANCELLED): (Phase.CLOSING, (Act.LEAVE_QUEUE, Act.CLOSE, Act.ADMIT)),
    (Phase.WAITING, Event.EXPIRED): (Phase.CLOSING, _LEAVE),
    (Phase.WAITING, Event.LOST): (Phase.CLOSING, _LEAVE),
    (Phase.WAITING, Event.LET_GO): (Phase.WAITING, _NOTHING),  # one that only prepared it
    #
    (Phase.RUNNING, Event.WALKED): (Phase.RUNNING, (Act.RESUME,)),
    (Phase.RUNNING, Event.WRITTEN): (Phase.RUNNING, (Act.PASS_ON,)),
    (Phase.RUNNING, Event.TAKEN): (Phase.RUNNING, (Act.TELL_TAKEN,)),
    (Phase.RUNNING, Event.FINISHED): (Phase.CLOSING, (Act.TELL_END, Act.CLOSE)),
    (Phase.RUNNING, Event.FAILED): (Phase.CLOSING, _FAULT),
    (Phase.RUNNING, Event.CANCELLED): (Phase.CLOSING, (Act.CLOSE,)),
    (Phase.RUNNING, Event.EXPIRED): (Phase.CLOSING, _FAULT),
    (Phase.RUNNING, Event.LOST): (Phase.CLOSING, _FAULT),
    (Phase.RUNNING, Event.LET_GO): (Phase.RUNNING, _NOTHING),  # one that only prepared it
    #
    (Phase.CLOSING, Event.WALKED): (Phase.CLOSING, _NOTHING),  # it ended before it was told to close
    (Phase.CLOSING, Event.WRITTEN): (Phase.CLOSING, _NOTHING),
    (Phase.CLOSING, Event.TAKEN): (Phase.CLOSING, _NOTHING),
    (Phase.CLOSING, Event.FAILED): (Phase.CLOSING, _NOTHING),  # its end has been told
    (Phase.CLOSING, Event.CANCELLED): (Phase.CLOSING, _NOTHING),
    (Phase.CLOSING, Event.EXPIRED): (Phase.CLOSING, _NOTHING),
    (Phase.CLOSING, Event.LOST): (Phase.CLOSING, _NOTHING),
    (Phase.CLOSING, Event.LET_GO): (Phase.CLOSING, _NOTHING),
    (Phase.CLOSING, Event.RELEASED): (Phase.GONE, (Act.GIVE_BACK, Act.ADMIT)),
}
