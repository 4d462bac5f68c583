"""What a component meets while it runs: the batch, its view of the cache, and how a turn says stop.

These are protocols; the runtime implements them. Types of torch stand here for readers and type checkers
only: importing this module imports no torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableSequence, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from walkserve_sdk.checkpoints import Checkpoint
from walkserve_sdk.errors import DeclarationError

if TYPE_CHECKING:
    import torch

Method = TypeVar("Method", bound=Callable[..., Any])
Gives = Mapping[str, Sequence[Any]]
"""What a method returns: by name, one value per row (a list, or a tensor whose first dimension is rows)."""


@dataclass(frozen=True)
class Stop:
    """End the loop of this row, or outside a loop its Walk. The turn's other gives are discarded.

    Args:
        reason: Read by the track as ``outcome.ended_by``.
        keep: Count this turn's gives after all.
        upstream: Also end, with this reason, the loop that writes the stream this node reads.
    """

    reason: str
    keep: bool = False
    upstream: bool = False


@dataclass(frozen=True)
class KVShape:
    """The size of an autoregressive component's cache, known once its checkpoint is loaded.

    Args:
        layers: Attention layers.
        kv_heads: Heads of keys and values.
        head_dim: Numbers per head.
        context: The most tokens one sequence may hold.
    """

    layers: int
    kv_heads: int
    head_dim: int
    context: int


class CacheView(Protocol):
    """The rows' caches, as one batch sees them. Tokens are packed, row after row."""

    @property
    def lengths(self) -> Sequence[int]:
        """Tokens each row's branch held before this call."""

    @property
    def cu_seqlens(self) -> Sequence[int]:
        """Where each row's new tokens begin in the packed dimension; one more entry than rows."""

    @property
    def positions(self) -> torch.Tensor:
        """Absolute index of every packed token in its sequence, int64 of shape (tokens,)."""

    def attend(
        self,
        layer: int,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        *,
        causal: bool = True,
        scale: float | None = None,
    ) -> torch.Tensor:
        """Attention of new tokens to their branch and to each other; keys and values are kept.

        Args:
            layer: Index of the attention layer.
            q: (tokens, heads, head_dim).
            k: (tokens, kv_heads, head_dim), after position encoding.
            v: (tokens, kv_heads, head_dim).
            causal: False lets the new tokens of a row see all of each other.
            scale: Of the scores; ``head_dim ** -0.5`` by default.

        Returns:
            (tokens, heads, head_dim).
        """


class Batch(Protocol):
    """Rows of one call, from any requests, Walks and branches. Nothing in it is visible until it returns."""

    @property
    def size(self) -> int:
        """Rows."""

    @property
    def cache(self) -> CacheView:
        """The rows' caches; only for a component declared with ``kv``."""

    @property
    def state(self) -> MutableSequence[Any]:
        """The rows' states, None at first. Assign a *new* state; never change one in place."""

    @property
    def options(self) -> Sequence[Any]:
        """The rows' ``Options``."""

    @property
    def turn(self) -> Sequence[int]:
        """The turn each row's innermost loop is in, from 0."""

    def values(self, name: str) -> list[Any]:
        """One value per row: numbers, text and tensors as they were given, a ``Helping`` for a stream."""

    def cat(self, name: str) -> torch.Tensor:
        """The rows' values joined along tokens, on the component's device; lists and numbers become int64.

        May be padded at the end, so that products have a bucketed size; ``last`` and ``cu_seqlens`` know.
        """

    def last(self, hidden: torch.Tensor) -> torch.Tensor:
        """The last token of every row, (rows, ...), of a packed (tokens, ...); may be padded likewise."""

    def sample(
        self,
        logits: torch.Tensor | Sequence[torch.Tensor],
        *,
        params: str = "sampling",
        stop: Mapping[int, str] | None = None,
        seen: str | None = None,
        allow: Sequence[torch.Tensor | None] | None = None,
    ) -> list[int]:
        """Draw one id per row, keyed by the request's seed, track, Walk and turn, never by the batch.

        Args:
            logits: (rows, vocabulary), what ``last`` gave through the head; padding is ignored. Or each row's
                own: (vocabulary,), or of a row with ``allow`` the logits of these ids alone, so that a head
                need not compute what cannot be drawn.
            params: The field of ``Options`` with this component's ``SamplingParams``.
            stop: Ids that stop their row, with the reason.
            seen: The taken value whose ids the repetition penalty counts, over all turns of this branch.
            allow: Per row the only ids it may draw, int64 and rising, or None for all; None frees every row.
        """

    def stop(self, row: int, stop: Stop) -> None:
        """End this row's loop."""

    def count(self, row: int, name: str, by: int = 1) -> None:
        """Add to a counter that is reported with the request's end (tokens dropped, frames repaired)."""

    def key(self, row: int, *counters: int | str) -> int:
        """A 63-bit seed of the row's own random stream, keyed by its seed, fan index, track and Walk.

        It does not depend on the turn: what is drawn by absolute position does not depend on chunking.
        """


class LoadableComponent(Protocol):
    """What every component class offers besides its methods."""

    @classmethod
    def load(cls, checkpoint: Checkpoint, *, device: torch.device, dtype: torch.dtype) -> Any:
        """Read the weights, strictly. An autoregressive component also has ``kv_shape: KVShape``.

        One that computes in another dtype than it is asked for says so with an attribute ``dtype``, and
        ``/v1/server`` tells that one.

        Raises:
            LoadError: Files, tensors or settings are missing, unexpected or of the wrong shape.
        """


def causal(method: Method) -> Method:
    """Declare that a method's rows may be split along tokens: no token sees a later one.

    The scheduler may then give a long row in pieces and mix it with short ones.

    Raises:
        DeclarationError: It has a ``token_count``: what it takes cannot be cut where tokens end.
    """
    if token_count_of(method) is not None:
        raise _splits_what_it_counts(method)
    method.__walkserve_causal__ = True  # type: ignore[attr-defined]
    return method


def is_causal(method: Callable[..., Any]) -> bool:
    """Whether ``causal`` was said of it."""
    return bool(getattr(method, "__walkserve_causal__", False))


def token_count(count: Callable[..., int]) -> Callable[[Method], Method]:
    """Declare how many tokens one call of a method brings into its component's cache.

    Without it they are as many as the longest list or tensor that it takes is long::

        @token_count(lambda self, latent, **_: len(latent) + 2)  # the action and the pose are tokens too
        def step(self, batch): ...

    Args:
        count: Asked with the component and, by name, all that the node takes.

    Raises:
        DeclarationError: The method is ``causal``: what it takes would be cut where tokens end.
    """

    def declare(method: Method) -> Method:
        if is_causal(method):
            raise _splits_what_it_counts(method)
        method.__walkserve_token_count__ = count  # type: ignore[attr-defined]
        return method

    return declare


def token_count_of(method: Callable[..., Any]) -> Callable[..., int] | None:
    """What ``token_count`` said of it."""
    count: Callable[..., int] | None = getattr(method, "__walkserve_token_count__", None)
    return count


def _splits_what_it_counts(method: Callable[..., Any]) -> DeclarationError:
    return DeclarationError(
        f"{method.__qualname__} is both causal and has a token_count: rows of a causal method are split "
        "where tokens end, so each item it takes has to be one token; leave out one of the two"
    )
