"""A component as a worker holds it: its object, its methods, its cache."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from typing import Any

import torch

from walkserve.cache.paged import PagedCache
from walkserve_sdk import Checkpoint, Component, KVShape, LoadError, PluginError
from walkserve_sdk.errors import did_you_mean
from walkserve_sdk.runtime import is_causal, token_count_of


@dataclass(slots=True)
class Held:
    """One loaded component.

    Args:
        dtype: What it was loaded in, or what the component says it computes in instead.
        methods: Those its family's graphs call, by name.
        cache: Of a component with ``kv``.
    """

    name: str
    component: Component
    device: torch.device
    dtype: torch.dtype
    methods: dict[str, Callable[..., Any]] = field(default_factory=dict)
    cache: PagedCache | None = None

    def splits(self, method: str) -> bool:
        """Whether long rows of this method may be given in pieces."""
        return self.cache is not None and is_causal(self.methods[method])

    def token_counts(self) -> dict[str, Callable[..., int]]:
        """Of the methods that say it, how many tokens a call brings, from what it takes."""
        counts = {name: token_count_of(method) for name, method in self.methods.items()}
        return {
            name: partial(count, getattr(self.methods[name], "__self__", None))
            for name, count in counts.items()
            if count is not None
        }

    @property
    def in_words(self) -> str:
        """For ``/v1/server``."""
        words = f"{self.device}, {str(self.dtype).removeprefix('torch.')}"
        return f"{words}, torch attention over pages" if self.cache is not None else words


def hold(
    component: Component,
    methods: set[str],
    checkpoint: Checkpoint,
    *,
    device: torch.device,
    dtype: torch.dtype,
    pages: Callable[[KVShape, int], int],
) -> Held:
    """Import, load and check one component.

    Args:
        pages: (shape, page size) -> how many pages its pool has.

    Raises:
        LoadError: The checkpoint does not fit.
        PluginError: The class or one of its methods is not there.
    """
    module, _, class_name = component.path.partition(":")
    try:
        kind = getattr(import_module(module), class_name)
    except (ImportError, AttributeError) as error:
        raise PluginError(
            f"component {component.name!r}: {component.path} cannot be imported: {error}"
        ) from error
    known = [name for name, _ in inspect.getmembers(kind, inspect.isfunction) if not name.startswith("_")]
    for method in sorted(methods):
        if not callable(getattr(kind, method, None)):
            raise PluginError(
                f"component {component.name!r}: {component.path} has no method {method!r}"
                f"{did_you_mean(method, known)}"
            )
    made = kind.load(checkpoint, device=device, dtype=dtype)
    own = getattr(made, "dtype", dtype)
    held = Held(component.name, component, device, own, {name: getattr(made, name) for name in methods})
    if component.kv is not None:
        shape = getattr(made, "kv_shape", None)
        if shape is None:
            raise LoadError(f"component {component.name!r} has a cache, but no kv_shape after loading")
        page_size = component.kv.page_size
        held.cache = PagedCache(
            shape, pages=pages(shape, page_size), page_size=page_size, device=device, dtype=dtype
        )
    return held
