"""Placement: which worker holds which component, by default or by a YAML or TOML file.

A file says, for a served name or for a whole family, which components go on which rank::

    models:
      orpheus:
        - {components: [llama], ranks: [0]}
        - {components: [snac], ranks: [1]}
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from walkserve.errors import SettingError
from walkserve.spots import Spot, read_spots, shown_kind
from walkserve_sdk.errors import DeclarationError, did_you_mean
from walkserve_sdk.models import Model

ONE_RANK = "this version runs all components of one graph on one rank"


@dataclass(frozen=True)
class Placed:
    """One component on one rank. ``where`` is its place in the file, for messages."""

    component: str
    rank: int
    where: str


@dataclass(frozen=True)
class Placement:
    """A placement file. ``models``: a served name or a family -> its place in the file, and its lines."""

    models: Mapping[str, tuple[str, tuple[Placed, ...]]]

    def entries(self, name: str, family: str) -> tuple[Placed, ...]:
        """What is said of one served model: of its name, or else of its family."""
        for key in (name, family):
            if key in self.models:
                return self.models[key][1]
        return ()

    def check(self, served: Mapping[str, str], installed: Iterable[str]) -> None:
        """Refuse what it says of models that are not served.

        Args:
            served: Served name -> family.
            installed: Names of the families that are installed.

        Raises:
            SettingError: With the line.
        """
        for key, (where, _) in self.models.items():
            if key in served or key in served.values():
                continue
            if key.partition(":")[0] in installed:
                raise SettingError(
                    f"{where}: {key!r} is placed, but not served; served: {', '.join(sorted(served))}"
                )
            near = did_you_mean(key, {*served, *served.values()})
            raise SettingError(f"{where}: unknown model {key!r}{near}")


def worker_prefix(name: str) -> str:
    """What the names of a served model's workers begin with; they become names of sockets."""
    return re.sub(r"[^A-Za-z0-9._-]", "-", name)


def place(
    name: str, family: type[Model], entries: Sequence[Placed] = (), *, on_cpu: bool = False
) -> dict[str, str]:
    """Component -> name of the worker that holds it.

    CPU components are on the host worker. The others are on the rank they are placed on; those that no
    entry names are on the lowest rank that one does, or on rank 0.

    Where the ranks are a CPU as well, and no entry says otherwise, the host worker also takes what can work
    beside rank 0, a codec for instance: two processes do more than one.

    All components of one graph must be on one worker: this is where that rule is.

    Raises:
        SettingError: An entry names no component, one twice, one that belongs on the host, or it parts
            components that one graph calls. With the line.
        DeclarationError: A graph calls components of the CPU and of a device, which no placement mends.
    """
    components = family.spec.components
    chosen: dict[str, Placed] = {}
    for entry in entries:
        component = components.get(entry.component)
        if component is None:
            raise SettingError(
                f"{entry.where}: {name} has no component {entry.component!r}"
                f"{did_you_mean(entry.component, components)}"
            )
        if component.device == "cpu":
            raise SettingError(
                f"{entry.where}: {entry.component!r} runs on the CPU, on {name}'s host worker; "
                "it is on no rank, so leave it out"
            )
        if entry.component in chosen:
            raise SettingError(
                f"{entry.where}: {entry.component!r} is placed a second time; "
                f"it is also in {chosen[entry.component].where}"
            )
        chosen[entry.component] = entry
    lowest = min((entry.rank for entry in entries), default=0)
    ranks = {component: entry.rank for component, entry in chosen.items()}
    on_host = {each for each, component in components.items() if component.device == "cpu"}
    if on_cpu and not entries:
        on_host |= _beside_rank_0(family)
    prefix = worker_prefix(name)
    workers = {
        each: f"{prefix}.host" if each in on_host else f"{prefix}.rank{ranks.get(each, lowest)}"
        for each in components
    }
    _check_graphs(family, chosen, workers)
    return workers


def _beside_rank_0(family: type[Model]) -> set[str]:
    """Components of a device that share no graph with the first of them, nor with one that has a cache."""
    device = {name: one for name, one in family.spec.components.items() if one.device != "cpu"}
    kept = set(list(device)[:1]) | {name for name, one in device.items() if one.kv is not None}
    graphs = [{node.component.name for node in graph.nodes()} for graph in family.spec.graphs.values()]
    while joined := set().union(*(graph for graph in graphs if graph & kept)) - kept:
        kept |= joined
    return set(device) - kept


def _check_graphs(family: type[Model], chosen: Mapping[str, Placed], workers: Mapping[str, str]) -> None:
    """This version runs all components of a graph on one worker; say so while the line is known."""
    for graph in family.spec.graphs.values():
        called = list({node.component.name: node.component for node in graph.nodes()}.values())
        on_cpu = [component.name for component in called if component.device == "cpu"]
        if on_cpu and len(on_cpu) < len(called):
            other = next(component.name for component in called if component.device != "cpu")
            raise DeclarationError(
                f"{family.__name__}.{graph.name}: it calls {on_cpu[0]!r} on the CPU and {other!r} on "
                f"a device; {ONE_RANK}: give each its own graph"
            )
        if len({workers[component.name] for component in called}) > 1:
            apart = [component.name for component in called if component.name in chosen][-1]
            others = ", ".join(repr(component.name) for component in called if component.name != apart)
            raise SettingError(
                f"{chosen[apart].where}: {apart!r} is placed apart from {others}, but the graph "
                f"{graph.name!r} calls them all; {ONE_RANK}"
            )


# --- reading a file -----------------------------------------------------------------------------------


def read_placement(path: Path) -> Placement:
    """Read a placement file.

    Raises:
        SettingError: It cannot be read, or says what no placement can. With the line (YAML) or the key
            (TOML).
    """
    top = read_spots(path, "placement file")
    if top.value is None:
        raise top.wrong("the file is empty; it has the key 'models'")
    keys = top.known("a placement file has the key 'models'", ("models",))
    if "models" not in keys:
        raise top.wrong("the key 'models' is missing")
    models = keys["models"].mapping("'models' maps names of models to lists")
    return Placement({key: (spot.where, tuple(_entries(key, spot))) for key, spot in models.items()})


def _entries(model: str, spot: Spot) -> list[Placed]:
    form = f"{model!r} has a list of entries {{components: [...], ranks: [...]}}"
    placed = []
    for entry in spot.list(form):
        keys = entry.known(f"an entry of {form}", ("components", "ranks"))
        for key in ("components", "ranks"):
            if key not in keys:
                raise entry.wrong(f"this entry lacks the key {key!r}")
        rank = _rank(keys["ranks"])
        names = keys["components"].list("'components' is a list of names")
        if not names:
            raise keys["components"].wrong("'components' is empty; name those that go on this rank")
        for name in names:
            if not isinstance(name.value, str):
                raise name.wrong(f"a component is named by a word, not by {shown_kind(name.value)}")
            placed.append(Placed(name.value, rank, name.where))
    return placed


def _rank(spot: Spot) -> int:
    ranks = spot.list("'ranks' is a list of one rank")
    if not ranks:
        raise spot.wrong("'ranks' is empty; name the rank, as in ranks: [0]")
    for rank in ranks:
        if isinstance(rank.value, bool) or not isinstance(rank.value, int) or rank.value < 0:
            raise rank.wrong(f"a rank is a whole number from 0 up, not {shown_kind(rank.value)}")
    if len(ranks) > 1:
        raise spot.wrong(
            f"'ranks' names {len(ranks)} ranks; replicas and tensor parallelism are not in this version, "
            "so a component is on one rank"
        )
    rank_number: int = ranks[0].value
    return rank_number
