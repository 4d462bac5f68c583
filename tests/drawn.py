"""Messages by chance, for hypothesis: every kind of a union, with any fields its types allow."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Sequence
from typing import Any, Union, get_args, get_origin, get_type_hints

import msgspec
from hypothesis import strategies as st

NUMBERS = st.one_of(st.integers(0, 5), st.integers(-(2**63), 2**63 - 1))


def messages(union: Any, names: Sequence[str], *, but: tuple[type, ...] = ()) -> st.SearchStrategy[Any]:
    """Of the kinds in ``union`` except ``but``; a text in them is often one of ``names``."""
    texts = st.one_of(st.sampled_from(names), st.sampled_from(names), st.text(max_size=3))
    return st.one_of([_of(kind, texts) for kind in get_args(union) if kind not in but])


def _of(kind: Any, texts: st.SearchStrategy[str]) -> st.SearchStrategy[Any]:
    simple = {
        int: NUMBERS,
        float: st.floats(),
        bool: st.booleans(),
        bytes: st.binary(max_size=4),
        type(None): st.none(),
        Any: st.sampled_from([None, {}, 3, {"most": 2}, {"most": "x"}, {"max_tokens": 3}, []]),
    }
    if kind in simple:
        return simple[kind]
    if kind is str:
        return texts
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return st.one_of([_of(one, texts) for one in inner])
    if origin is list:
        return st.lists(_of(inner[0], texts), max_size=3)
    if origin is dict:
        return st.dictionaries(_of(inner[0], texts), _of(inner[1], texts), max_size=3)
    if origin is tuple and inner[1:] == (...,):
        return st.lists(_of(inner[0], texts), max_size=3).map(tuple)
    if origin is tuple:
        return st.tuples(*[_of(one, texts) for one in inner])
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        hints = get_type_hints(kind)
        return st.builds(kind, **{name: _of(hints[name], texts) for name in kind.__struct_fields__})
    if dataclasses.is_dataclass(kind):
        hints = get_type_hints(kind)
        return st.builds(kind, **{one.name: _of(hints[one.name], texts) for one in dataclasses.fields(kind)})
    raise TypeError(f"nothing is drawn for {kind}")
