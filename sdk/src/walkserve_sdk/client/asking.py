"""What is asked of a model, in Python's words and in each of those that travel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from walkserve_sdk.parts import take_parts
from walkserve_sdk.requests import Part

FormField = tuple[str, tuple[str | None, str | bytes]]


@dataclass(frozen=True, slots=True)
class Asking:
    """One request of one model, not checked: that is for the server."""

    model: str
    parts: tuple[Part, ...]
    outputs: tuple[str, ...] | None
    split: str | None
    timeout_s: float | None
    options: dict[str, Any]

    @property
    def has_media(self) -> bool:
        return any(isinstance(part.data, bytes) for part in self.parts)

    def fields(self) -> dict[str, Any]:
        """All but the parts."""
        fields: dict[str, Any] = {"model": self.model}
        if self.outputs is not None:
            fields["outputs"] = self.outputs
        if self.split is not None:
            fields["split"] = self.split
        if self.timeout_s is not None:
            fields["timeout_s"] = self.timeout_s
        if self.options:
            fields["options"] = self.options
        return fields

    def json(self) -> dict[str, Any]:
        """A body of ``POST /v1/generate``, of a request without media."""
        inputs = [_entry(part, "text", part.data) for part in self.parts]
        return {**self.fields(), "inputs": inputs}

    def form(self) -> list[FormField]:
        """The same as a form, with files as they are."""
        fields = self.fields()
        form: list[FormField] = [("model", (None, self.model))]
        form += [("outputs", (None, output)) for output in fields.pop("outputs", ())]
        if "options" in fields:
            form.append(("options", (None, msgspec.json.encode(self.options))))
        if self.split is not None:
            form.append(("split", (None, self.split)))
        if self.timeout_s is not None:
            form.append(("timeout_s", (None, f"{self.timeout_s!r}")))
        for part in self.parts:
            field = f"{part.kind}[{part.name}]" if part.name else part.kind
            form.append((field, (None if isinstance(part.data, str) else part.kind, part.data)))
        return form

    def frames(self, label: str, *, text_open: bool) -> list[str | bytes]:
        """The same over a WebSocket: what begins it, and its media."""
        inputs = [
            _entry(part, "text", part.data)
            if isinstance(part.data, str)
            else _entry(part, "bytes", len(part.data))
            for part in self.parts
        ]
        frame = {"type": "generate", "id": label, **self.fields(), "inputs": inputs}
        if text_open:
            frame["text_open"] = True
        media = [part.data for part in self.parts if isinstance(part.data, bytes)]
        return [msgspec.json.encode(frame).decode(), *media]


def _entry(part: Part, content: str, value: Any) -> dict[str, Any]:
    """A part among the inputs; its name is left out where it has none."""
    named = {"name": part.name} if part.name else {}
    return {"type": part.kind, **named, content: value}


def asking(
    model: str,
    *,
    text: str | None,
    inputs: Sequence[Part] | None,
    outputs: Sequence[str] | None,
    split: str | None,
    timeout_s: float | None,
    fields: dict[str, Any],
) -> Asking:
    """Put together what a caller has given by keyword.

    Args:
        fields: Media by their kind, as ``take_parts`` has them; the others are options.

    Raises:
        BadRequest: What is given for a part is none.
        TypeError: Parts are given both in their order and by keyword.
    """
    given = {"text": text, **fields}
    parts = take_parts(given, inputs)
    return Asking(
        model=model,
        parts=parts,
        outputs=None if outputs is None else (outputs,) if isinstance(outputs, str) else tuple(outputs),
        split=split,
        timeout_s=timeout_s,
        options=given,
    )
