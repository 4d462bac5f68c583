"""What the soak asks for: requests of two families, by every route and in every form of answer."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from tests.soak.wire import Leaving

Route = Literal["speech", "generate", "socket"]
Kind = Literal["good", "failing", "leaving"]
Family = Literal["orpheus", "trial"]

POOL_TOKENS = 640
"""Of each family's cache: of the requests below, a handful run and the others wait."""
OVERCOMMIT = 2
"""How many times these are promised."""
ORPHEUS, TRIAL = "orpheus:toy", "trial"
TOO_LATE = "deadline_exceeded"
TEXTS = ("call 5 5 1", "dial 042", "7", "9 9 8", "call 3 1 4 1 5")
TALES = ("once upon a time", "a", "the quick brown fox jumps over the lazy dog", "it was " * 20)


@dataclass(frozen=True)
class Ask:
    """One request.

    Args:
        name: Asks of one name are the same request.
        fields: The body, or the ``generate`` frame.
        accept: The form of the answer, by ``/v1/generate``.
        code: Of the error that it has to end with; empty for one that has to end well.
        is_accepted: Whether the server takes it; what is refused before is in no count.
        calls: How many calls of the model the server makes of it.
        leaves: How its client leaves before the end, and after how many bytes or events.
        after: Where it does. None for as soon as the request is sent.
        slowly_s: How long a slow reader waits before it reads on.
    """

    name: str
    family: Family
    route: Route
    fields: dict[str, Any]
    accept: str = ""
    kind: Kind = "good"
    code: str = ""
    is_accepted: bool = True
    calls: int = 1
    leaves: Leaving | None = None
    after: int | None = None
    slowly_s: float = 0.0

    @property
    def is_slow(self) -> bool:
        return self.slowly_s > 0

    @property
    def path(self) -> str:
        return "/v1/audio/speech" if self.route == "speech" else "/v1/generate"


@dataclass
class Mix:
    """How many of a hundred requests are what."""

    failing: int = 15
    leaving: int = 25
    slow: int = 8
    families: tuple[int, int] = field(default=(45, 55))


# --- good ones -------------------------------------------------------------------------------------------


def good_asks() -> list[Ask]:
    """One of each kind of request, form of answer and route; each is asked for many times."""
    return [*_speech(), *_orpheus_generate(), *_trial()]


def _speech() -> Iterator[Ask]:
    manners: list[dict[str, Any]] = [
        *({"response_format": form} for form in ("wav", "pcm", "flac", "mp3", "opus")),
        *({"response_format": form, "stream": True} for form in ("wav", "pcm", "mp3")),
        *({"response_format": form, "stream_format": "sse"} for form in ("wav", "pcm")),
    ]
    for n, manner in enumerate(manners):
        text, voice = TEXTS[n % len(TEXTS)], ("tara", "leo")[n % 2]
        options = {"temperature": 0, "seed": n, "max_tokens": 140, "voice": voice}
        name = "speech " + " ".join(map(str, manner.values()))
        yield Ask(name, "orpheus", "speech", {"model": ORPHEUS, "input": text} | options | manner)
    fields = {"model": ORPHEUS, "input": "call 5 5 1! 042", "split": "sentence", "max_tokens": 140}
    yield Ask(
        "speech by sentence",
        "orpheus",
        "speech",
        fields | {"temperature": 0, "seed": 5, "stream": True, "response_format": "pcm"},
        calls=2,
    )


def _orpheus_generate() -> Iterator[Ask]:
    options = {"temperature": 0.8, "top_p": 0.9, "seed": 11, "max_tokens": 105, "constrain": True}
    fields = {"model": ORPHEUS, "text": "dial 551", "options": options}
    for accept in ("application/x-ndjson", "text/event-stream", "audio/wav", "application/x-npy"):
        yield Ask(f"generate {accept}", "orpheus", "generate", fields, accept)
    yield Ask("socket sound", "orpheus", "socket", fields)


def _trial() -> Iterator[Ask]:
    forms: list[tuple[str, list[str] | None]] = [
        ("application/x-ndjson", None),
        ("text/event-stream", ["words", "marks"]),
        ("text/plain", ["words"]),
        ("application/octet-stream", ["total"]),
        ("application/x-npy", ["weight"]),
    ]
    for n, (accept, outputs) in enumerate(forms):
        for again in (0, 8):
            yield Ask(
                f"trial {accept} again={again}",
                "trial",
                "generate",
                trial_fields(TALES[n % len(TALES)], outputs, seed=20 + n, again=again, max_tokens=16 + n),
                accept,
            )
    yield Ask("trial socket", "trial", "socket", trial_fields(TALES[2], None, seed=31, again=6))
    # 96 KiB of marks for each helping: they go through the shared memory, not through messages
    wide = trial_fields(TALES[1], ["words", "marks"], seed=32, width=12_000)
    yield Ask("trial wide ndjson", "trial", "generate", wide, "application/x-ndjson")
    yield Ask("trial wide socket", "trial", "socket", wide)


def trial_fields(text: str, outputs: list[str] | None = None, **options: Any) -> dict[str, Any]:
    """A request to the family for trials, by ``/v1/generate`` or in a ``generate`` frame."""
    chosen = {} if outputs is None else {"outputs": outputs}
    return {"model": TRIAL, "text": text, "options": options, **chosen}


# --- failing ones ----------------------------------------------------------------------------------------


def failing_asks() -> list[Ask]:
    """One of each way to fail, by route and by when."""
    found = []
    for fail, at, code in (
        ("prepare", 0, "component_failed"),
        ("budget", 0, "plan_failed"),
        ("plan", 0, "plan_failed"),
        ("turn", 0, "component_failed"),
        ("turn", 7, "component_failed"),
        ("teller", 0, "component_failed"),
        ("teller", 9, "component_failed"),
    ):
        fields = trial_fields(TALES[0], seed=1, max_tokens=14, fail=fail, at=at)
        ask = Ask(f"fails in {fail} {at}", "trial", "generate", fields, kind="failing", code=code)
        plain = replace(ask, accept="text/plain", fields=fields | {"outputs": ["words"]})
        found += [ask, replace(ask, route="socket"), plain]
    late = trial_fields(TALES[0], ["words"], seed=1, max_tokens=14, turn_ms=300) | {"timeout_s": 0.5}
    for accept in ("application/x-ndjson", "text/plain"):
        ask = Ask("takes too long", "trial", "generate", late, accept, kind="failing", code=TOO_LATE)
        found += [ask, replace(ask, route="socket")]
    never = trial_fields(TALES[0], max_tokens=POOL_TOKENS)
    found.append(
        Ask("never fits", "trial", "generate", never, kind="failing", code="context_length_exceeded")
    )
    long = {"model": ORPHEUS, "input": "7", "max_tokens": 3 * POOL_TOKENS}
    found.append(Ask("never fits", "orpheus", "speech", long, kind="failing", code="context_length_exceeded"))
    refused = trial_fields(TALES[0], fail="check")
    found += [
        Ask("is refused", "trial", "generate", refused, kind="failing", is_accepted=False),
        Ask("is refused", "trial", "socket", refused, kind="failing", is_accepted=False),
        Ask(
            "no such voice",
            "orpheus",
            "speech",
            {"model": ORPHEUS, "input": "7", "voice": "zoe"},
            kind="failing",
            is_accepted=False,
        ),
    ]
    return found


# --- the plan --------------------------------------------------------------------------------------------


def plan(count: int, seed: int, mix: Mix | None = None) -> list[Ask]:
    """So many requests in an order that the seed decides, the same for the same seed."""
    mix = mix or Mix()
    chance = random.Random(seed)
    good, failing = good_asks(), failing_asks()
    by_family = {name: [ask for ask in good if ask.family == name] for name in ("orpheus", "trial")}
    planned: list[Ask] = []
    n_failing, n_leaving = count * mix.failing // 100, count * mix.leaving // 100
    chance.shuffle(failing)
    for n in range(n_failing):
        planned.append(failing[n % len(failing)])
    for n in range(n_leaving):
        family = chance.choices(("orpheus", "trial"), mix.families)[0]
        ask = by_family[family][n % len(by_family[family])]
        planned.append(leaving(ask, chance))
    for n in range(count - len(planned)):
        family = chance.choices(("orpheus", "trial"), mix.families)[0]
        ask = by_family[family][n % len(by_family[family])]
        planned.append(replace(ask, slowly_s=0.05) if chance.randrange(100) < mix.slow else ask)
    chance.shuffle(planned)
    return planned


def leaving(ask: Ask, chance: random.Random) -> Ask:
    """The same, by a client that leaves: at once, or after some of the answer."""
    ways: list[Leaving] = ["close", "reset", "cancel"] if ask.route == "socket" else ["close", "reset"]
    after = chance.choice((None, 0, 1, 2) if ask.route == "socket" else (None, 0, 1, 4000))
    return replace(ask, kind="leaving", leaves=chance.choice(ways), after=after)
