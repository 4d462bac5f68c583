"""A mistake in a declaration is an error when it is imported, in the author's words and with the cure."""

from typing import Any

import pytest

from walkserve_sdk import (
    Component,
    DeclarationError,
    Fan,
    Fixed,
    Loop,
    Model,
    Node,
    Output,
    PagedKV,
    Parallel,
    Sequential,
    Stream,
    Text,
    WalkGraph,
    track,
)

LLM = "some.where:LM"


def refusal(name: str = "Toy", **members: Any) -> str:
    """What the author of a model with this body is told."""
    with pytest.raises(DeclarationError) as refused:
        type(name, (Model,), members)
    return str(refused.value)


def graph_refusal(*parts: Any, **members: Any) -> str:
    """Likewise, of a graph ``go`` with these parts."""
    return refusal(go=WalkGraph(*parts), **members)


@pytest.fixture
def llm() -> Component:
    return Component(LLM, kv=PagedKV(branches=("no_text",)))


@pytest.fixture
def vae() -> Component:
    return Component("some.where:VAE")


# --- names ---------------------------------------------------------------------------------------------


def test_a_carry_that_nothing_gives(llm: Component) -> None:
    decode = WalkGraph(Loop(Node(llm, "next", takes="token", gives="token"), carry="tokn", times=3))
    assert refusal("Orpheus", llm=llm, decode=decode) == (
        "Orpheus.decode: the loop carries 'tokn' but nothing in it gives 'tokn'; did you mean 'token'?"
    )


def test_a_collect_that_nothing_gives(llm: Component) -> None:
    loop = Loop(Node(llm, "next", takes="a", gives="a"), carry="a", collect={"all": "b"})
    assert graph_refusal(loop, llm=llm) == (
        "Toy.go: the loop collects 'b' as 'all' but nothing in it gives 'b'; known: a"
    )


def test_an_outcome_of_what_nothing_gives(llm: Component) -> None:
    go = WalkGraph(Loop(Node(llm, "next", takes="a", gives=("a", "b")), carry="a"), gives="b")
    assert refusal(llm=llm, go=go) == (
        "Toy.go: gives='b' is to be in its outcome, but nothing in it gives 'b'; known: a"
    )


def test_a_name_both_carried_and_collected(llm: Component) -> None:
    loop = Loop(Node(llm, "next", takes="a", gives="a"), carry="a", collect={"a": "a"})
    assert graph_refusal(loop, llm=llm) == (
        "Toy.go: the loop both carries and collects 'a'; collect it under another name"
    )


def test_a_name_both_carried_and_taken_turn_by_turn(llm: Component) -> None:
    loop = Loop(Node(llm, "next", takes="a", gives="a"), carry="a", each={"a": "many"})
    assert graph_refusal(loop, llm=llm) == (
        "Toy.go: the loop has 'a' twice, by carry and each; let each have a name of its own"
    )


def test_an_each_that_nothing_takes(vae: Component) -> None:
    loop = Loop(Node(vae, "sing", takes="pich", gives="pcm"), each={"pitch": "pitches"})
    assert graph_refusal(loop, vae=vae) == (
        "Toy.go: each= gives the loop 'pitch' but nothing in it takes it; did you mean 'pich'?"
    )
    loop = Loop(Node(vae, "sing", when="sings"), each={"sings": "singing"})  # a when is a taker
    type("Toy", (Model,), {"vae": vae, "go": WalkGraph(loop)})


def test_an_over_that_nothing_takes(vae: Component) -> None:
    fan = Fan(Node(vae, "look", takes="crop", gives="seen"), over={"crops": "all_crops"})
    assert graph_refusal(fan, vae=vae) == (
        "Toy.go: over= gives the Fan 'crops' but nothing in it takes it; did you mean 'crop'?"
    )


def test_a_first_turn_that_takes_before_anything_has_given(llm: Component) -> None:
    loop = Loop(Node(llm, "next", takes="ids", gives="ids"), times=3)
    assert graph_refusal(loop, llm=llm) == (
        "Toy.go: the loop's first turn takes 'ids' before any turn has given it; write carry='ids'"
    )


def test_a_forgotten_carry_is_found_also_where_a_node_before_the_loop_gives_the_name(llm: Component) -> None:
    first = Node(llm, "first", gives="ids")
    loop = Loop(Node(llm, "next", takes="ids", gives="ids"), times=3)
    assert graph_refusal(first, loop, llm=llm) == (
        "Toy.go: the loop's first turn takes 'ids' before any turn has given it; write carry='ids'"
    )


def test_a_name_that_does_not_leave_its_loop(llm: Component, vae: Component) -> None:
    loop = Loop(Node(llm, "next", takes="pose", gives=("latent", "pose")), carry="pose", times=3)
    score = Node(vae, "score", takes="latent", gives="energy")
    message = (
        "Toy.go: 'latent' is taken after a loop that gives it only inside; "
        "write carry='latent' for its last value, or collect={...: 'latent'} for all of them"
    )
    assert graph_refusal(loop, score, llm=llm, vae=vae) == message
    assert graph_refusal(Fan(loop, over={"pose": "poses"}), score, llm=llm, vae=vae) == message


def test_a_loop_that_would_turn_for_ever(llm: Component) -> None:
    message = "Toy.go: a Loop with no carry, times, each or stream would turn for ever; give it one of them"
    assert graph_refusal(Loop(Node(llm, "next")), llm=llm) == message


def test_a_loop_is_not_fed_by_the_stream_of_an_inner_loop(llm: Component) -> None:
    codes = Stream(by="client")
    outer = Loop(Loop(Node(llm, "read", takes=codes)))
    assert "would turn for ever" in graph_refusal(outer, llm=llm, codes=codes)


def test_two_parts_of_a_parallel_that_give_one_name(vae: Component) -> None:
    parallel = Parallel(Node(vae, "a", gives="x"), Node(vae, "b", gives="x"))
    assert graph_refusal(parallel, vae=vae) == (
        "Toy.go: two parts of one Parallel give 'x'; let each give a name of its own"
    )


def test_a_part_of_a_parallel_that_takes_what_its_neighbour_gives(vae: Component) -> None:
    message = (
        "Toy.go: a part of a Parallel takes 'x', which its neighbour gives; "
        "they run at the same time: put them in sequence"
    )
    gives, takes = Node(vae, "a", gives="x"), Node(vae, "b", takes="x")
    assert graph_refusal(Parallel(gives, takes), vae=vae) == message
    assert graph_refusal(Parallel(takes, gives), vae=vae) == message
    assert graph_refusal(gives, Parallel(takes, gives), vae=vae) == message


def test_a_part_of_a_parallel_may_refine_what_it_takes(vae: Component) -> None:
    both = WalkGraph(Parallel(Node(vae, "a", takes="x", gives="x"), Node(vae, "b", takes="y", gives="y")))
    type("Toy", (Model,), {"vae": vae, "both": both})
    assert both.inputs == {"x", "y"}


def test_a_node_that_takes_or_gives_a_name_twice(vae: Component) -> None:
    assert (
        graph_refusal(Node(vae, "a", takes=("x", "x")), vae=vae) == "Toy.go: Node(vae, 'a') takes 'x' twice"
    )
    assert (
        graph_refusal(Node(vae, "a", gives=("x", "x")), vae=vae) == "Toy.go: Node(vae, 'a') gives 'x' twice"
    )


def test_a_when_that_only_the_device_knows(vae: Component) -> None:
    parts = (Node(vae, "look", gives="guided"), Node(vae, "guide", when="guided"))
    assert graph_refusal(*parts, vae=vae) == (
        "Toy.go: Node(vae, 'guide'): when='guided' is given by a node, but it must be known before the turn; "
        "take it from the Walk's inputs, turn by turn with each="
    )


def test_the_inputs_of_a_graph_are_what_nothing_in_it_gives(llm: Component, vae: Component) -> None:
    go = WalkGraph(
        Sequential(Node(vae, "noise", gives="latents")),
        Loop(
            Node(llm, "velocity", takes=("latents", "t"), gives="v", when="guided", keeps=False),
            Node(vae, "step", takes=("latents", "v", "scale"), gives="latents"),
            carry="latents",
            each={"t": "timesteps", "guided": "guidance"},
            times="most",
        ),
        Fan(Node(vae, "look", takes=("crop", "latents"), gives="seen"), over={"crop": "crops"}),
    )
    type("Toy", (Model,), {"llm": llm, "vae": vae, "go": go})
    assert go.inputs == {"timesteps", "guidance", "most", "scale", "crops"}


# --- components and branches ---------------------------------------------------------------------------


def test_a_component_that_is_no_attribute(llm: Component, vae: Component) -> None:
    assert graph_refusal(Node(vae, "a"), llm=llm) == (
        "Toy.go: it uses Component('some.where:VAE'), which is no attribute of the model; "
        "write name = Component(...) in its body"
    )


def test_an_output_or_a_stream_that_is_no_attribute(vae: Component) -> None:
    assert graph_refusal(Node(vae, "a", gives="x", to=Output(Text())), vae=vae) == (
        "Toy.go: it uses Output(Text(kind='text')), which is no attribute of the model; "
        "write name = Output(...) in its body"
    )
    assert graph_refusal(Loop(Node(vae, "a", takes=Stream())), vae=vae) == (
        "Toy.go: it uses Stream(Each()), which is no attribute of the model; "
        "write name = Stream(...) in its body"
    )


def test_an_unknown_branch(llm: Component) -> None:
    assert graph_refusal(Node(llm, "velocity", branch="no_txt"), llm=llm) == (
        "Toy.go: Node(llm, 'velocity') is on branch 'no_txt', which 'llm' does not declare; "
        "did you mean 'no_text'?"
    )


def test_a_node_that_keeps_nothing_where_there_is_nothing_to_keep(vae: Component) -> None:
    assert graph_refusal(Node(vae, "a", keeps=False), vae=vae) == (
        "Toy.go: Node(vae, 'a'): keeps=False, but 'vae' has no cache (kv=) to keep anything in"
    )


def test_two_parallel_writers_of_one_branch(llm: Component) -> None:
    message = (
        "Toy.go: two parts of one Parallel write 'llm' on branch 'main'; "
        "give one of them another branch, or keeps=False"
    )
    assert graph_refusal(Parallel(Node(llm, "a"), Sequential(Node(llm, "b"))), llm=llm) == message


def test_two_parallel_writers_of_one_state() -> None:
    codec = Component("some.where:Codec", state=True)
    assert graph_refusal(Parallel(Node(codec, "a"), Node(codec, "b")), codec=codec) == (
        "Toy.go: two parts of one Parallel write 'codec' on branch 'main'; "
        "give one of them another branch, or keeps=False"
    )


def test_a_parallel_reader_beside_a_writer(llm: Component) -> None:
    message = (
        "Toy.go: one part of a Parallel writes 'llm' on branch 'main' while another reads it; "
        "give one of them another branch, or put them in sequence"
    )
    reads, writes = Node(llm, "a", keeps=False), Node(llm, "b")
    assert graph_refusal(Parallel(reads, writes), llm=llm) == message
    assert graph_refusal(Parallel(writes, reads), llm=llm) == message


def test_parallel_calls_on_other_branches_or_that_only_read_are_welcome(llm: Component) -> None:
    read = Node(llm, "velocity", keeps=False)
    type(
        "Toy",
        (Model,),
        {
            "llm": llm,
            "write": WalkGraph(Parallel(Node(llm, "next"), Node(llm, "next", branch="no_text"))),
            "read": WalkGraph(Parallel(read, read, Node(llm, "velocity", keeps=False, branch="no_text"))),
        },
    )


def test_two_parallel_writers_of_one_output(vae: Component) -> None:
    words = Output(Text())
    parallel = Parallel(Node(vae, "a", gives="x", to=words), Node(vae, "b", gives="y", to=words))
    assert graph_refusal(parallel, vae=vae, words=words) == (
        "Toy.go: two parts of one Parallel write 'words', in no order; put them in sequence"
    )


# --- Fan and streams -----------------------------------------------------------------------------------


def test_a_fan_in_a_fan(vae: Component) -> None:
    fan = Fan(Fan(Node(vae, "a", takes="x"), over={"x": "xs"}), over={"xs": "xss"})
    assert graph_refusal(fan, vae=vae) == "Toy.go: a Fan inside a Fan; fan once, over all of it"


def test_a_fan_in_a_loop_in_a_fan(vae: Component) -> None:
    inner = Loop(Fan(Node(vae, "a", takes="x"), over={"x": "xs"}), times=2)
    assert "a Fan inside a Fan" in graph_refusal(Fan(inner, over={"xs": "xss"}), vae=vae)


def test_a_stream_read_or_written_inside_a_fan(vae: Component) -> None:
    codes = Stream()
    reading = Fan(Loop(Node(vae, "a", takes=("x", codes))), over={"x": "xs"})
    assert graph_refusal(reading, vae=vae, codes=codes) == (
        "Toy.go: Node(vae, 'a') reads the stream 'codes' inside a Fan; a stream has one reader"
    )
    writing = Fan(Node(vae, "a", takes="x", gives="y", to=codes), over={"x": "xs"})
    assert graph_refusal(writing, vae=vae, codes=codes) == (
        "Toy.go: Node(vae, 'a') writes the stream 'codes' inside a Fan; a stream has one writer"
    )


def test_a_stream_read_outside_a_loop(vae: Component) -> None:
    codes = Stream()
    assert graph_refusal(Node(vae, "a", takes=codes), vae=vae, codes=codes) == (
        "Toy.go: Node(vae, 'a') reads the stream 'codes' outside a loop; put it in a Loop(...)"
    )


def test_a_stream_read_by_two_nodes_of_a_graph(vae: Component) -> None:
    codes = Stream()
    loop = Loop(Node(vae, "a", takes=codes), Node(vae, "b", takes=codes))
    assert graph_refusal(loop, vae=vae, codes=codes) == (
        "Toy.go: Node(vae, 'b') reads the stream 'codes', which Node(vae, 'a') of this graph reads; "
        "read it once and give the value on by name"
    )


def test_a_node_that_writes_what_the_client_writes(vae: Component) -> None:
    frames = Stream(by="client")
    assert graph_refusal(Node(vae, "a", gives="x", to=frames), vae=vae, frames=frames) == (
        "Toy.go: Node(vae, 'a') writes 'frames', but that stream is written by the client"
    )


class Piping:
    """Members of a model in which ``writing`` writes ``codes`` and ``reading`` reads it."""

    def __init__(self) -> None:
        self.llm = Component(LLM)
        self.codes = Stream(Fixed(7))
        self.write = WalkGraph(Node(self.llm, "write", gives="code", to=self.codes))
        self.read = WalkGraph(Loop(Node(self.llm, "read", takes=self.codes)))

    def members(self, **more: Any) -> dict[str, Any]:
        names = ("llm", "codes", "write", "read")
        return {name: getattr(self, name) for name in names} | more


def writes(self: Any, request: Any, prepared: Any) -> Any:
    yield self.write()


def reads(self: Any, request: Any, prepared: Any) -> Any:
    yield self.read()


def rests(self: Any, request: Any, prepared: Any) -> None:
    return None


def test_a_stream_between_two_tracks_has_both_its_ends() -> None:
    pipe = Piping()
    members = pipe.members(writing=track(writes=pipe.codes)(writes), reading=track(reads))
    spec = type("Toy", (Model,), members).spec
    assert (spec.writers, spec.readers) == ({"codes": "writing"}, {"codes": "reading"})


def test_a_walk_that_a_helper_method_asks_for_counts() -> None:
    pipe = Piping()
    helper = lambda self: self.read()  # noqa: E731
    through_it = track(lambda self, request, prepared: (yield self.listen()))
    writing = track(writes=pipe.codes)(writes)
    spec = type("Toy", (Model,), pipe.members(listen=helper, reading=through_it, writing=writing)).spec
    assert spec.readers == {"codes": "reading"}


def test_a_method_of_something_else_is_no_walk() -> None:
    tokenizer, llm = Component("some.where:Tokenizer", device="cpu"), Component(LLM)

    def prepare(self: Any, request: Any) -> Any:
        return self.encode(text=request.one("text").decode())  # bytes.decode, not the graph

    encode, decode = WalkGraph(Node(tokenizer, "encode", takes="text")), WalkGraph(Node(llm, "decode"))
    type("Toy", (Model,), dict(tokenizer=tokenizer, llm=llm, encode=encode, decode=decode, prepare=prepare))


def test_a_graph_that_nobody_asks_for(vae: Component) -> None:
    members = {"vae": vae, "go": WalkGraph(Node(vae, "a"))}
    assert refusal(**members, resting=track(rests)) == (
        "Toy.go: neither a track nor prepare asks for this graph; yield self.go(...) in a track, or delete it"
    )
    base = type("Base", (Model,), members)  # without tracks: a base for others
    type("Toy", (base,), {"resting": track(rests)})  # what it inherits, it may leave


def test_an_output_that_nothing_writes(vae: Component) -> None:
    members = {"vae": vae, "read": WalkGraph(Node(vae, "a")), "words": Output(Text())}
    assert refusal(**members, reading=track(reads)) == (
        "Toy.words: no node writes this output; write to=words on one, or delete it"
    )


def test_a_stream_that_no_track_reads() -> None:
    pipe = Piping()
    assert refusal(**pipe.members(writing=track(writes=pipe.codes)(writes), reading=track(rests))) == (
        "Toy.codes: no track reads this stream; delete it, or read it"
    )


def test_a_stream_that_two_tracks_read() -> None:
    pipe = Piping()
    members = pipe.members(writing=track(writes=pipe.codes)(writes), one=track(reads), two=track(reads))
    assert refusal(**members) == "Toy.two: 'codes' is already read by 'one'; a stream has one reader"


def test_a_stream_that_no_track_writes() -> None:
    assert refusal(**Piping().members(reading=track(reads))) == (
        "Toy.codes: no track writes this stream; write @track(writes=codes), or Stream(by='client')"
    )


def test_a_stream_that_two_tracks_write() -> None:
    pipe = Piping()
    writing = track(writes=pipe.codes)(writes)
    other = track(writes=pipe.codes)(writes)
    assert refusal(**pipe.members(writing=writing, other=other, reading=track(reads))) == (
        "Toy.other: 'codes' is already written by 'writing'; a stream has one writer"
    )


def test_a_track_that_does_not_say_what_it_writes() -> None:
    assert refusal(**Piping().members(writing=track(writes), reading=track(reads))) == (
        "Toy.writing: its Walk 'write' writes 'codes'; say so with @track(writes=codes)"
    )


def test_a_track_that_does_not_write_what_it_says() -> None:
    pipe = Piping()
    members = pipe.members(writing=track(writes=pipe.codes)(rests), reading=track(reads))
    assert refusal(**members) == (
        "Toy.writing: it says that it writes 'codes', but none of its Walks does; write to=codes on a node"
    )


def test_a_track_that_writes_what_the_client_writes() -> None:
    pipe = Piping()
    pipe.codes.by = "client"
    del pipe.write
    members = {"llm": pipe.llm, "codes": pipe.codes, "read": pipe.read}
    assert refusal(**members, writing=track(writes=pipe.codes)(rests), reading=track(reads)) == (
        "Toy.writing: it writes 'codes', but that stream is written by the client"
    )


def test_a_track_that_writes_somebody_elses_stream() -> None:
    pipe = Piping()
    assert refusal(**pipe.members(writing=track(writes=Stream())(writes), reading=track(reads))) == (
        "Toy.writing: it uses Stream(Each()), which is no attribute of the model; "
        "write name = Stream(...) in its body"
    )


def test_a_circle_of_tracks() -> None:
    llm, there, back = Component(LLM), Stream(), Stream()
    members = {
        "llm": llm,
        "there": there,
        "back": back,
        "ask": WalkGraph(Loop(Node(llm, "ask", takes=back, gives="x", to=there))),
        "answer": WalkGraph(Loop(Node(llm, "answer", takes=there, gives="x", to=back))),
        "asking": track(writes=there)(lambda self, request, prepared: (yield self.ask())),
        "answering": track(writes=back)(lambda self, request, prepared: (yield self.answer())),
    }
    assert refusal(**members) == (
        "Toy.asking: it reads, by way of streams, what it writes itself; "
        "tracks and streams must not form a circle"
    )


# --- prepare -------------------------------------------------------------------------------------------


def test_prepare_on_the_device(llm: Component) -> None:
    prepare = lambda self, request: self.go()  # noqa: E731
    assert graph_refusal(Node(llm, "encode"), llm=llm, prepare=prepare) == (
        "Toy.prepare: 'go' calls 'llm', which is on the device; "
        "prepare runs before admission, on Component(..., device='cpu') only"
    )


def test_prepare_that_answers_the_client() -> None:
    host, words = Component("some.where:Host", device="cpu"), Output(Text())
    prepare = lambda self, request: self.go()  # noqa: E731
    assert graph_refusal(Node(host, "a", gives="x", to=words), host=host, words=words, prepare=prepare) == (
        "Toy.prepare: 'go' writes 'words'; "
        "prepare runs before the request's streams and outputs exist: do it in a track"
    )


# --- what a part refuses by itself ---------------------------------------------------------------------

PART = Component("some.where:Part")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: Component("some.where"),
            "Component('some.where'): a component is named 'package.module:Class'",
        ),
        (lambda: Component(LLM, rows=0), f"Component('{LLM}'): rows=0, but a batch holds at least one row"),
        (
            lambda: Component(LLM, device="cuda"),  # type: ignore[arg-type]
            f"Component('{LLM}'): device='cuda'; say 'cpu' for the host, and leave the rest to placement",
        ),
        (lambda: PagedKV(page_size=0), "PagedKV: page_size=0, but a page holds at least one token"),
        (
            lambda: PagedKV(branches="no_text"),  # type: ignore[arg-type]
            "PagedKV: branches='no_text' is one word, not several; write branches=('no_text',)",
        ),
        (
            lambda: PagedKV(branches=("main",)),
            "PagedKV: branch 'main' is there already; 'main' always is",
        ),
        (lambda: Node("llm", "next"), "Node('llm', 'next'): the first argument is a Component"),  # type: ignore[arg-type]
        (
            lambda: Node(PART, "a", takes=7),  # type: ignore[arg-type]
            "Node(Component('some.where:Part'), 'a'): it takes 7; give names and Streams",
        ),
        (
            lambda: Node(PART, "a", gives=("x", "y"), to=Stream()),
            "Node(some.where:Part, 'a'): to=Stream(Each()) fits a node that gives one value, this one "
            "gives 2; write to={'name': ...}",
        ),
        (
            lambda: Node(PART, "a", gives="token", to={"tokn": Stream()}),
            "Node(some.where:Part, 'a'): to= names 'tokn', which the node does not give; "
            "did you mean 'token'?",
        ),
        (
            lambda: Node(PART, "a", gives="x", to={"x": "codes"}),  # type: ignore[dict-item]
            "Node(some.where:Part, 'a'): to= sends 'x' to 'codes'; give a Stream or an Output",
        ),
        (
            lambda: Node(PART, "a", gives="x", to="codes"),  # type: ignore[arg-type]
            "Node(some.where:Part, 'a'): to='codes'; give a Stream, an Output, or a mapping to={'name': ...}",
        ),
        (lambda: Sequential(), "Sequential(): it arranges nothing; give it at least one part"),
        (
            lambda: Loop(WalkGraph(Node(PART, "a"))),  # type: ignore[arg-type]
            "Loop(...): WalkGraph('') is no part of a graph; "
            "use the graph's parts, a WalkGraph does not nest",
        ),
        (lambda: Loop(PART), "Loop(...): Component('some.where:Part') is no part of a graph; give a Node"),  # type: ignore[arg-type]
        (lambda: Loop(Node(PART, "a"), times=-1), "Loop: times=-1, but a number of turns is not negative"),
        (
            lambda: Loop(Node(PART, "a"), times=2.5),  # type: ignore[arg-type]
            "Loop: times=2.5; give a number of turns, or the name of one",
        ),
        (
            lambda: Fan(Node(PART, "a"), over={}),
            "Fan: over= names no input, so there is nothing to fan over",
        ),
    ],
)
def test_a_part_says_what_it_cannot_be(make, message: str) -> None:
    with pytest.raises(DeclarationError) as refused:
        make()
    assert str(refused.value) == message
