"""Entries in the words of whoever reads a journal, and in what two of them differ."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

from walkserve.journal import entries as e
from walkserve.journal.notes import BytesNote, Note, NumberNote, RecordNote, TensorNote
from walkserve_sdk.errors import shown

MOST_ITEMS = 6
"""Of a list that are told; of a longer one it is said how many there are."""
MOST_TEXT = 60
"""Characters of a text that are told."""
PREPARE = "prepare"


def track_of(entry: e.Line) -> str:
    """The track an entry is about, or ``""``."""
    return getattr(entry, "track", "")


def place(entry: e.Line) -> str:
    """Where in a request an entry stands: ``writing, Walk 2``."""
    track = track_of(entry)
    match entry:
        case e.WalkStarted() | e.WalkEnded() | e.WalkBroke() if track:
            return f"{track}, Walk {entry.walk}"
        case e.ForkStarted() | e.Forked():
            return f"{track}, before Walk {entry.walk}"
        case e.TrackFinished():
            return f"{track}, at its end"
        case _:
            return "the request"


def says(entry: e.Line) -> str:
    """What an entry says, in a few words."""
    match entry:
        case e.Opened():
            return "accepted"
        case e.Sized():
            return _sized(entry)
        case e.Admitted():
            return "admitted"
        case e.WalkStarted():
            return f"{entry.graph}({_named(entry.inputs)})"
        case e.WalkEnded():
            return _ended(entry)
        case e.WalkBroke():
            return f"it broke: {_fault(entry.fault.message, entry.fault.status)}"
        case e.ForkStarted():
            return f"Fork({entry.component}, {entry.branch or 'nothing'} -> {entry.to})"
        case e.Forked():
            return "forked"
        case e.ClientWrote():
            return f"the client wrote {', '.join(map(value_words, entry.items))} to {entry.stream}"
        case e.ClientFinished():
            return f"the client ended {entry.stream} after {entry.total} items"
        case e.TrackFinished():
            return "returns" if entry.reason is None else f"returns {entry.reason!r}"
        case e.Ended():
            return _request_ended(entry)
        case e.Failed():
            return f"failed: {_fault(entry.fault.message, entry.fault.status)}"
        case e.Cancelled():
            return "cancelled by its client"
        case e.BrokenOff():
            return f"the journal ends here: {entry.why}"


def does(entry: e.Line) -> str:
    """The same of a plan that does it: ``asks for decode(token=7)``."""
    match entry:
        case e.WalkStarted() | e.ForkStarted():
            return f"asks for {says(entry)}"
        case e.TrackFinished():
            return says(entry)
        case e.Sized():
            return f"needs {says(entry)}" if entry.budget else says(entry)
        case e.Failed() | e.Ended() | e.Admitted():
            return says(entry)
        case _:
            return f"goes on: {says(entry)}"


def _fault(message: str, status: int) -> str:
    return f"{message} ({status})"


def _sized(entry: e.Sized) -> str:
    sizes = [f"{name} {start} + up to {more} tokens" for name, (start, more) in entry.budget.items()]
    cut = [f"{name} cut to {value}" for name, value in entry.cut.items()]
    return ", ".join([*sizes, *cut]) or "needs no cache"


def _ended(entry: e.WalkEnded) -> str:
    told = [f"ended by {entry.ended_by}"]
    told += [f"{entry.turns} turn{'' if entry.turns == 1 else 's'}"] if entry.turns else []
    told += [f"gave {_named(entry.values)}"] if entry.values else []
    told += [f"wrote {count} to {name}" for name, count in entry.wrote.items() if count]
    told += [f"{name}: {count}" for name, count in entry.counts.items() if count]
    return ", ".join(told)


def _request_ended(entry: e.Ended) -> str:
    told = [f"ended: {entry.finish_reason}"]
    told += [f"{count} piece{'' if count == 1 else 's'} of {name}" for name, count in entry.emitted.items()]
    told += [f"{count} {name.replace('_', ' ')}" for name, count in entry.usage.items()]
    told += [f"{name}: {count}" for name, count in entry.counts.items()]
    return ", ".join(told)


# --- values -------------------------------------------------------------------------------------------


def _named(notes: Mapping[str, Note]) -> str:
    return ", ".join(f"{name}={value_words(note)}" for name, note in notes.items())


def value_words(note: Note) -> str:
    """A value in short."""
    match note:
        case NumberNote(value):
            return value
        case BytesNote():
            return f"<{note.size_bytes:,} bytes {note.sha256[:8]}>"
        case TensorNote():
            size = "×".join(map(str, note.shape)) or "single"
            known = note.sha256[:8] or f"{note.owner}/{note.key}"
            return f"<{note.dtype} {size} {known}>"
        case RecordNote(fields):
            return f"{{{_named(fields)}}}"
        case str():
            return shown(note, MOST_TEXT)
        case list():
            items = ", ".join(value_words(one) for one in note[:MOST_ITEMS])
            return f"[{items}]" if len(note) <= MOST_ITEMS else f"[{items}, … {len(note)} in all]"
        case _:
            return json.dumps(note) if isinstance(note, float) else repr(note)


# --- differences --------------------------------------------------------------------------------------


def differences(journal: e.Line, plan: e.Line) -> list[str]:
    """In which values two entries of one kind differ, where their short words may not show it."""
    match journal, plan:
        case e.WalkStarted(), e.WalkStarted() if journal.graph == plan.graph:
            return list(_differ(journal.inputs, plan.inputs))
        case _:
            return []


def _differ(journal: Mapping[str, Note], plan: Mapping[str, Note]) -> Iterator[str]:
    for name in {**journal, **plan}:
        if name not in plan or name not in journal:
            who = "this plan" if name not in journal else "the journal"
            yield f"only {who} has {name}"
            continue
        one, other = journal[name], plan[name]
        if isinstance(one, list) and isinstance(other, list):
            yield from _differ_in_items(name, one, other)
        elif not same(one, other):
            yield f"{name} is {value_words(one)} in the journal and {value_words(other)} in this plan"


def _differ_in_items(name: str, one: Sequence[Note], other: Sequence[Note]) -> Iterator[str]:
    first = next((n for n, pair in enumerate(zip(one, other, strict=False)) if not same(*pair)), None)
    if first is not None:
        yield (
            f"{name}[{first}] is {value_words(one[first])} in the journal "
            f"and {value_words(other[first])} in this plan"
        )
    elif len(one) != len(other):
        yield f"{name} has {len(one)} items in the journal and {len(other)} in this plan"


def same(one: Note, other: Note) -> bool:
    """Whether two values are one for a component: 1 is not 1.0, nor True."""
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, RecordNote) and isinstance(other, RecordNote):
        ours, theirs = one.fields, other.fields
        return ours.keys() == theirs.keys() and all(same(ours[name], theirs[name]) for name in ours)
    return type(one) is type(other) and one == other
