"""From what a user names to what a server is given: models, found, placed and with their files at hand."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from types import NoneType
from typing import TypedDict, Unpack

from walkserve.checkpoints import HubAccess, resolve_checkpoint
from walkserve.conductor.placement import Placement, place, read_placement, worker_prefix
from walkserve.config import CACHE_TOKENS, ModelConfig, rank_number
from walkserve.errors import SettingError
from walkserve.journal.folder import usable_folder
from walkserve.model_names import ModelName, parse_model_name
from walkserve.plugins import find_models, load_model
from walkserve_sdk.errors import did_you_mean

DEVICES = ("auto", "cpu", "cuda")
DTYPES = ("auto", "float32", "bfloat16")
AUTO = "auto"
"""Of a token budget: measured."""
_HALF = ("float16", "fp16", "half")
LONGEST_WORKER = 67
"""Characters of a worker's name: of the 107 bytes that a socket's path may have, a run folder takes 36 and
the worker's incarnation 4."""


class Choices(TypedDict, total=False):
    """What a user may choose, the same for every model that is served together.

    Args:
        placement: A placement file.
        device: ``"auto"`` takes a GPU where there is one.
        dtype: ``"auto"`` takes float32 on a CPU, bfloat16 on a GPU.
        deterministic: Batched equals alone, to the bit on a CPU; slower.
        cache_tokens: Tokens a cached component's pool holds in all on a CPU.
        overcommit: How many times its pages a pool may be promised; what is too much moves to host memory.
        token_budget: The most tokens of prompts in one batch; ``"auto"`` measures it when the model is warm.
        profile: Note of each request what it did and waited for.
        journal: A folder, made if need be, for a journal of each request.
        revision: Branch, tag or commit of the one model's repository.
        offline: Take only what is in the hub's local cache.
        token: Of the hub, for gated and private repositories.
        plugins: The only distributions that may be loaded; empty for all that are installed.
    """

    placement: Path | str | None
    device: str
    dtype: str
    deterministic: bool
    cache_tokens: int | None
    overcommit: float
    token_budget: int | str
    profile: bool
    journal: Path | str | None
    revision: str | None
    offline: bool
    token: str | None
    plugins: tuple[str, ...]


class OwnChoices(TypedDict, total=False):
    """What may be chosen for one of several models that are served together; as in ``Choices``."""

    device: str
    dtype: str
    deterministic: bool
    cache_tokens: int | None
    overcommit: float
    token_budget: int | str
    revision: str | None


@dataclass(frozen=True)
class AskedModel:
    """A model to serve.

    Args:
        name: ``NAME[:VARIANT][=CHECKPOINT]``.
        own: What is chosen for it alone, whatever is chosen for all.
    """

    name: str
    own: OwnChoices = field(default_factory=lambda: OwnChoices())


def resolve_model(text: str, **choices: Unpack[Choices]) -> ModelConfig:
    """One model, ``NAME[:VARIANT][=CHECKPOINT]``, as ``resolve_models`` has it."""
    return resolve_models((text,), **choices)[0]


def resolve_models(models: Sequence[str | AskedModel], **choices: Unpack[Choices]) -> tuple[ModelConfig, ...]:
    """Find, check and place models, and fetch their files; the slow part comes last.

    Raises:
        SettingError: A name, an option or the placement file cannot be.
        PluginError: A family is installed and cannot be used.
        DeclarationError: A family declares what this version does not run; the message has the cure.
        LoadError: A checkpoint is not where it should be, and cannot be fetched.
    """
    _check_types(choices)
    asked = [AskedModel(model) if isinstance(model, str) else model for model in models]
    names = [parse_model_name(model.name) for model in asked]
    _check_names(names)
    _check_choices(choices)
    for model in asked:
        _check_types(model.own)
        _check_choices(model.own)
    chosen: list[Choices] = [{**choices, **model.own} for model in asked]
    revision = choices.get("revision")
    if revision is not None and len(names) > 1:
        raise SettingError(
            f"the revision {revision!r} is given for {len(names)} models; "
            "write it after the one it belongs to: NAME=owner/name@revision"
        )
    path = choices.get("placement")
    placement = read_placement(Path(path)) if path is not None else Placement({})
    plugins = choices.get("plugins", ())
    found = find_models(plugins)
    families = [load_model(name.family, plugins) for name in names]
    placement.check({name.served: name.family for name in names}, found.names)
    ranks = [
        place(
            name.served,
            family,
            placement.entries(name.served, name.family),
            on_cpu=_is_cpu(own.get("device", "auto")),
        )
        for name, family, own in zip(names, families, chosen, strict=True)
    ]
    for name, workers in zip(names, ranks, strict=True):
        _check_length(name, workers.values())
    journal = choices.get("journal")
    folder = "" if journal is None else str(usable_folder(Path(journal)))
    access = HubAccess(choices.get("offline", False), choices.get("token"))
    checkpoints = [
        resolve_checkpoint(name, family, revision=own.get("revision"), access=access)
        for name, family, own in zip(names, families, chosen, strict=True)
    ]
    every = {worker for workers in ranks for worker in workers.values()}
    device_ranks = tuple(number for worker in sorted(every) if (number := rank_number(worker)) is not None)
    return tuple(
        ModelConfig(
            name=name.served,
            family=name.family,
            label=checkpoint.label,
            folders={part: str(folder) for part, folder in checkpoint.folders.items()},
            ranks=workers,
            device=own.get("device", "auto"),
            dtype=own.get("dtype", "auto"),
            deterministic=own.get("deterministic", False),
            cache_tokens=own.get("cache_tokens") or CACHE_TOKENS,
            overcommit=float(own.get("overcommit", 1.0)),
            token_budget=None if (budget := own.get("token_budget", AUTO)) == AUTO else int(budget),
            profile=choices.get("profile", False),
            journal=folder,
            device_ranks=device_ranks,
            plugin=found.one(name.family).distribution,
        )
        for name, checkpoint, workers, own in zip(names, checkpoints, ranks, chosen, strict=True)
    )


def _is_cpu(device: str) -> bool:
    """Whether ``device`` is the CPU, asked without torch: no GPU is seen without its driver's library."""
    if device != "auto":
        return device == "cpu"
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return True
    return False


_TYPES: dict[str, tuple[type, ...]] = {
    "placement": (str, Path, NoneType),
    "device": (str,),
    "dtype": (str,),
    "deterministic": (bool,),
    "cache_tokens": (int, NoneType),
    "overcommit": (int, float),
    "token_budget": (int, str),
    "profile": (bool,),
    "journal": (str, Path, NoneType),
    "revision": (str, NoneType),
    "offline": (bool,),
    "token": (str, NoneType),
    "plugins": (tuple,),
}


def _check_types(choices: Mapping[str, object]) -> None:
    """A script may pass anything: what nobody knows is not swallowed."""
    for name, value in choices.items():
        if name not in _TYPES:
            raise SettingError(f"there is no setting {name!r}{did_you_mean(name, _TYPES)}")
        if not isinstance(value, _TYPES[name]):
            kinds = " or ".join(kind.__name__ for kind in _TYPES[name] if kind is not NoneType)
            raise SettingError(f"the setting {name!r} is a {kinds}, not {value!r}")


def _check_names(names: Sequence[ModelName]) -> None:
    if not names:
        raise SettingError("no model is named")
    prefixes: dict[str, str] = {}
    for name in names:
        prefix = worker_prefix(name.served)
        other = prefixes.get(prefix)
        prefixes[prefix] = name.served
        if other is None:
            continue
        if other == name.served:
            raise SettingError(
                f"{name.served!r} is named twice; serve the second under a name of its own: "
                f"{name.family}:NAME=CHECKPOINT"
            )
        raise SettingError(
            f"{other!r} and {name.served!r} would give their workers the same names; serve one of them "
            "under another name: FAMILY:NAME=CHECKPOINT"
        )


def _check_length(name: ModelName, workers: Iterable[str]) -> None:
    longest = max(workers, key=len, default="")
    if len(longest) > LONGEST_WORKER:
        raise SettingError(
            f"{name.served!r} is too long a name: its worker would be {longest!r}, which has {len(longest)} "
            f"characters, and may have {LONGEST_WORKER}; serve it under a shorter one: FAMILY:NAME=CHECKPOINT"
        )


def _check_choices(choices: Choices | OwnChoices) -> None:
    check_device(choices.get("device", "auto"))
    check_dtype(choices.get("dtype", "auto"))
    cache_tokens = choices.get("cache_tokens")
    if cache_tokens is not None and cache_tokens < 1:
        raise SettingError(f"a cache of {cache_tokens} tokens holds nothing; give at least 1")
    overcommit = choices.get("overcommit", 1.0)
    if not 1.0 <= overcommit < inf:
        raise SettingError(
            f"an overcommit of {overcommit:g} is nothing to admit by; give a number, at least 1"
        )
    check_token_budget(choices.get("token_budget", AUTO))


def check_device(device: str) -> None:
    """Raises SettingError where there is no such device."""
    if device not in DEVICES:
        raise SettingError(f"there is no device {device!r}; there is {', '.join(DEVICES)}")


def check_token_budget(budget: int | str) -> None:
    """Raises SettingError where it is neither a number of tokens nor left to be measured."""
    if budget != AUTO and (isinstance(budget, str) or budget < 1):
        raise SettingError(f"the token budget {budget!r} is neither {AUTO} nor a number of at least 1")


def check_dtype(dtype: str) -> None:
    """Raises SettingError where it is none that is served, and says why float16 is none."""
    if dtype in _HALF:
        raise SettingError(
            f"the dtype {dtype!r} is not served: its range is too small for weights trained in bfloat16, "
            "and on a CPU it is up to 18 times slower; take bfloat16 or float32"
        )
    if dtype not in DTYPES:
        raise SettingError(f"there is no dtype {dtype!r}; there is {', '.join(DTYPES)}")
