"""Component: a part with weights, named by import path, so that a declaration never imports torch."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, NamedTuple

from walkserve_sdk.errors import DeclarationError, did_you_mean

_PATH = re.compile(r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$")


@dataclass(frozen=True)
class PagedKV:
    """An autoregressive component's cache of keys and values, in pages.

    The numbers of layers, heads and the context come from the checkpoint, when it is loaded.

    Args:
        page_size: Tokens a page holds.
        branches: Names, besides ``main``, under which a request may continue this cache (see ``Fork``).
    """

    page_size: int = 16
    branches: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.page_size < 1:
            raise DeclarationError(
                f"PagedKV: page_size={self.page_size}, but a page holds at least one token"
            )
        if isinstance(self.branches, str):
            raise DeclarationError(
                f"PagedKV: branches={self.branches!r} is one word, not several; "
                f"write branches=({self.branches!r},)"
            )
        for index, name in enumerate(self.branches):
            if name == "main" or name in self.branches[:index]:
                raise DeclarationError(f"PagedKV: branch {name!r} is there already; 'main' always is")


class Component:
    """A part of a model: a noun, loaded once, called by nodes.

    Args:
        path: ``"package.module:Class"``; imported in the worker that holds the component, nowhere else.
        kv: Given, the component is autoregressive and owns a paged cache per request and branch.
        state: True, the component keeps one opaque state per request and branch (``batch.state``).
        rows: The most rows one batch may hold; None leaves it to the scheduler.
        device: ``"cpu"`` puts it on the family's host worker, beside tokenisers and media decoding;
            None on the family's device worker.
    """

    def __init__(
        self,
        path: str,
        *,
        kv: PagedKV | None = None,
        state: bool = False,
        rows: int | None = None,
        device: Literal["cpu"] | None = None,
    ) -> None:
        if not _PATH.match(path):
            raise DeclarationError(f"Component({path!r}): a component is named 'package.module:Class'")
        if rows is not None and rows < 1:
            raise DeclarationError(f"Component({path!r}): rows={rows}, but a batch holds at least one row")
        if device not in (None, "cpu"):
            raise DeclarationError(
                f"Component({path!r}): device={device!r}; say 'cpu' for the host, "
                "and leave the rest to placement"
            )
        self.path = path
        self.kv = kv
        self.state = state
        self.rows = rows
        self.device = device
        self.name = ""

    @property
    def branches(self) -> tuple[str, ...]:
        """Every branch name a node may use: ``main`` first."""
        return ("main", *(self.kv.branches if self.kv else ()))

    def on(self, branch: str) -> OnBranch:
        """One of its branches besides ``main``, for ``Model.budget``: what it holds of its own.

        Raises:
            DeclarationError: It has no such branch.
        """
        own = self.branches[1:]
        if branch not in own:
            raise DeclarationError(
                f"{self.name}.on({branch!r}): besides main its branches are {', '.join(own) or 'none'}"
                f"{did_you_mean(branch, own)}"
            )
        return OnBranch(self, branch)

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = self.name or name

    def __repr__(self) -> str:
        return f"Component({self.name or self.path!r})"


class OnBranch(NamedTuple):
    """A branch of a component; made by ``Component.on``."""

    component: Component
    branch: str

    @property
    def name(self) -> str:
        """As a journal calls it."""
        return f"{self.component.name}@{self.branch}"
