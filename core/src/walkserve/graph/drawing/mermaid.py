"""A family as a Mermaid flowchart, for pages that draw it themselves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from walkserve.graph.drawing import words
from walkserve.graph.drawing.svg import component_colours
from walkserve_sdk import Fan, Loop, Model, Node, Parallel, Stream, WalkGraph
from walkserve_sdk.graph import Part


def draw_mermaid(model: type[Model]) -> str:
    """A family's tracks, Walks and streams as Mermaid's text."""
    return "\n".join(_Chart(model).lines()) + "\n"


class _Chart:
    """Numbers nodes and frames as it goes; links come after everything that they join."""

    def __init__(self, model: type[Model]) -> None:
        self._model = model
        self._links: list[str] = []
        self._lanes: list[str] = []
        self._walks: list[str] = []
        self._frames: list[str] = []
        self._gives: dict[str, tuple[str, ...]] = {}  # by a node's name
        self._hue = {name: hue for hue, name in enumerate(model.spec.components)}

    def lines(self) -> Iterator[str]:
        spec = self._model.spec
        yield "flowchart LR"
        for number, (lane, graphs) in enumerate(words.lanes(self._model)):
            note = " (before admission)" if lane == "prepare" else ""
            self._lanes.append(f"lane{number}")
            yield f"  subgraph lane{number}[{_quoted(lane + note)}]"
            yield "    direction LR"
            for graph in graphs:
                yield from self._graph(number, graph)
            yield "  end"
        for stream in spec.streams.values():
            yield f"  stream_{stream.name}{{{{{_quoted(words.stream_label(stream))}}}}}:::stream"
        for output in spec.outputs.values():
            label = f"{output.name}: {words.output_kind(output)}"
            yield f"  output_{output.name}([{_quoted(label)}]):::output"
        for link in self._links:
            yield f"  {link}"
        for name, hue in self._hue.items():
            fill, edge = component_colours(hue)
            yield f"  classDef {_class(name)} fill:{fill},stroke:{edge},color:#1b2432"
        yield "  classDef stream fill:#efe9fe,stroke:#7446d8,color:#1b2432"
        yield "  classDef output fill:#d5f2ec,stroke:#0f766e,color:#0b4f4a"
        for kind, names in (("lane", self._lanes), ("walk", self._walks), ("frame", self._frames)):
            if names:
                yield f"  class {','.join(names)} {kind}"
        yield "  classDef lane fill:#f1f4f9,stroke:#f1f4f9,color:#1b2432"
        yield "  classDef walk fill:#ffffff,stroke:#c3ccda,color:#1b2432"
        yield "  classDef frame fill:#f7f9fc,stroke:#8593a8,color:#55627a"
        yield "  classDef value fill:#e8edf4,stroke:#9aa6b8,color:#1b2432"

    # --- what stands where -----------------------------------------------------------------------------

    def _graph(self, lane: int, graph: WalkGraph) -> Iterator[str]:
        name = f"lane{lane}_{graph.name}"
        self._walks.append(name)
        yield f"    subgraph {name}[{_quoted(graph.name)}]"
        yield "      direction LR"
        inner, first, last = self._sequence(graph.parts, depth=3)
        takes = ", ".join(words.graph_inputs(graph))
        if takes:
            yield f"      {name}_takes[/{_quoted(takes)}/]:::value"
            self._links += [f"{name}_takes --> {node}" for node in first]
        yield from inner
        gives = ", ".join(words.results(graph))
        if gives:
            yield f"      {name}_gives[/{_quoted(gives)}/]:::value"
            self._links += [f"{node} --> {name}_gives" for node in last]
        yield "    end"

    def _part(self, part: Part, depth: int) -> tuple[list[str], list[str], list[str]]:
        """Its lines, and the nodes that come first and last in it."""
        match part:
            case Node():
                return self._node(part, depth)
            case Loop():
                end = words.loop_end(part)
                lines, first, last = self._frame(part.parts, f"↻ {end}", words.loop_collects(part), depth)
                carried = ", ".join(part.carry)
                back = f"-. {_quoted(carried)} .->" if carried else "-.->"
                self._links += [f"{a} {back} {b}" for a in last for b in first]
                return lines, first, last
            case Fan():
                return self._frame(part.parts, words.fan_over(part), "", depth)
            case Parallel():
                each = [self._part(inner, depth) for inner in part.parts]
                return (
                    [line for lines, _, _ in each for line in lines],
                    [node for _, first, _ in each for node in first],
                    [node for _, _, last in each for node in last],
                )
            case _:
                return self._sequence(part.parts, depth)

    def _sequence(self, parts: Sequence[Part], depth: int) -> tuple[list[str], list[str], list[str]]:
        made = [self._part(part, depth) for part in parts]
        for index in range(1, len(made)):
            names = words.passed_on(parts, index)
            for a in made[index - 1][2]:
                # of branches beside each other, each gives its own
                own = [name for name in names if name in self._gives[a]]
                told = ", ".join(own if isinstance(parts[index - 1], Parallel) else names)
                arrow = f"-- {_quoted(told)} -->" if told else "-->"
                self._links += [f"{a} {arrow} {b}" for b in made[index][1]]
        return [line for lines, _, _ in made for line in lines], made[0][1], made[-1][2]

    def _frame(
        self, parts: Sequence[Part], caption: str, more: str, depth: int
    ) -> tuple[list[str], list[str], list[str]]:
        name = f"frame{len(self._frames) + 1}"
        self._frames.append(name)
        pad = "  " * depth
        title = f"{caption}<br/>{more}" if more else caption
        head = f"{pad}subgraph {name}[{_quoted(title)}]"
        lines, first, last = self._sequence(parts, depth + 1)
        return [head, f"{pad}  direction LR", *lines, f"{pad}end"], first, last

    def _node(self, node: Node, depth: int) -> tuple[list[str], list[str], list[str]]:
        name = f"node{len(self._gives) + 1}"
        self._gives[name] = node.gives
        takes, gives = words.node_flow(node)
        said = [f"<b>{words.node_title(node)}</b>", f"{takes} → {gives}".strip(), words.node_notes(node)]
        label = _quoted("<br/>".join(each for each in said if each))
        self._links += [f"stream_{stream.name} ==> {name}" for stream in node.reads]
        for target in dict.fromkeys(target for _, target in node.to):
            kind = "stream" if isinstance(target, Stream) else "output"
            self._links.append(f"{name} ==> {kind}_{target.name}")
        return [f"{'  ' * depth}{name}[{label}]:::{_class(node.component.name)}"], [name], [name]


def _class(component: str) -> str:
    """Prefixed, for a component may be called as a word of Mermaid's own is."""
    return f"part_{component}"


def _quoted(text: str) -> str:
    return '"' + text.replace('"', "#quot;") + '"'
