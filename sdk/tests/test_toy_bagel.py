"""BAGEL's image loop in the toy runtime: Parallel branches, guidance in some turns only, forks."""

from typing import Any

from walkserve_sdk import (
    Component,
    Fork,
    Image,
    Loop,
    Model,
    Node,
    Outcome,
    Output,
    PagedKV,
    Parallel,
    Part,
    Request,
    Text,
    Track,
    WalkGraph,
    track,
)
from walkserve_sdk.testing import ToyCall, ToyRuntime


class Bagel(Model):
    inputs = ("text", "image")
    llm = Component("some.where:LM", kv=PagedKV(branches=("no_text", "no_image")))
    solver = Component("some.where:Solver")
    vae = Component("some.where:VAE")
    words = Output(Text())
    image = Output(Image())

    read = WalkGraph(Node(llm, "read", takes="text"))
    see = WalkGraph(Node(llm, "see", takes="picture"))
    think = WalkGraph(
        Loop(
            Node(llm, "next", takes="token", gives="token", to=words),
            carry="token",
            times="most",
            collect={"tokens": "token"},
        )
    )
    denoise = WalkGraph(
        Node(solver, "noise", gives="latents"),
        Loop(
            Parallel(
                Node(llm, "velocity", takes=("latents", "t"), gives="full", keeps=False),
                Node(
                    llm,
                    "velocity",
                    takes=("latents", "t"),
                    gives="no_text",
                    keeps=False,
                    branch="no_text",
                    when="guided",
                ),
                Node(
                    llm,
                    "velocity",
                    takes=("latents", "t"),
                    gives="no_image",
                    keeps=False,
                    branch="no_image",
                    when="guided",
                ),
            ),
            Node(solver, "step", takes=("latents", "t", "full", "no_text", "no_image"), gives="latents"),
            each={"t": "timesteps", "guided": "guidance"},
            carry="latents",
        ),
        Node(vae, "decode", takes="latents", gives="pixels", to=image),
    )

    @track
    def drawing(self, request: Request, prepared: Outcome) -> Track:
        for picture in request.all("image"):
            yield self.see(picture=picture)
        yield Fork(self.llm, "main", to="no_text")
        yield self.read(text=request.one("text"))
        if request.all("image"):
            pass  # no_image stays empty: its own prefill is left out here
        else:
            yield Fork(self.llm, "main", to="no_image")
        if request.wants(self.words):
            thought = yield self.think(token=0, most=4)
            yield self.read(text=thought["tokens"])
        yield self.denoise(timesteps=[0.9, 0.5, 0.1], guidance=[True, True, False])
        return None


class LM:
    def __init__(self) -> None:
        self.velocities: list[tuple[str, int]] = []

    def read(self, call: ToyCall) -> None:
        call.tokens = len(call["text"])

    def see(self, call: ToyCall) -> None:
        call.tokens = 10

    def next(self, call: ToyCall) -> dict[str, Any]:
        if call["token"] == 2:
            call.stop("image")
        return {"token": call["token"] + 1}

    def velocity(self, call: ToyCall) -> dict[str, Any]:
        self.velocities.append((call.branch, call.length))
        assert call.branch == "main" or call["t"] != 0.1
        return {{"main": "full"}.get(call.branch, call.branch): f"v({call.branch})"}


class Solver:
    def __init__(self) -> None:
        self.steps: list[tuple[Any, ...]] = []

    def noise(self, call: ToyCall) -> dict[str, Any]:
        return {"latents": ["noise"]}

    def step(self, call: ToyCall) -> dict[str, Any]:
        self.steps.append((call.turn, call["no_text"], call["no_image"]))
        return {"latents": [*call["latents"], call["t"]]}


def draw(*parts: Part, outputs: tuple[str, ...] = ("image",)):
    llm, solver, bagel = LM(), Solver(), Bagel()
    runtime = ToyRuntime(bagel, {"llm": llm, "solver": solver})
    return runtime.run(bagel.request(parts=parts, outputs=outputs)), llm, solver


CAT = Part("text", "a cat")


def test_the_loop_turns_once_per_timestep_and_carries_the_latents() -> None:
    result, _, _ = draw(CAT)
    assert result.calls("vae.decode") == [{"latents": ["noise", 0.9, 0.5, 0.1]}]
    assert result.outputs == {"image": ["vae.decode(latents)"]}


def test_a_turn_without_guidance_skips_its_branches_and_they_give_nothing() -> None:
    _, _, solver = draw(CAT, Part("image", b"1"))
    assert solver.steps == [
        (0, "v(no_text)", "v(no_image)"),
        (1, "v(no_text)", "v(no_image)"),
        (2, None, None),
    ]


def test_a_branch_goes_on_from_where_it_was_forked() -> None:
    _, llm, _ = draw(CAT, Part("image", b"1"))
    assert llm.velocities[:3] == [("main", 15), ("no_text", 10), ("no_image", 0)]


def test_calls_that_keep_nothing_leave_the_cache_as_it_was() -> None:
    result, _, _ = draw(CAT, Part("image", b"1"))
    assert {name: branch.length for name, branch in result.branches.items()} == {
        ("llm", "main"): 15,
        ("llm", "no_text"): 10,
    }


def test_rows_that_are_equal_are_computed_once() -> None:
    result, llm, solver = draw(CAT)  # no_image was forked from main, which nothing wrote since
    assert result.shared == 2
    assert [branch for branch, _ in llm.velocities] == ["main", "no_text", "main", "no_text", "main"]
    assert solver.steps[0] == (0, "v(no_text)", "v(main)")


def test_a_fork_stands_in_the_journal() -> None:
    result, _, _ = draw(CAT)
    assert result.did("drawing")[:4] == ["fork", "read", "llm.read", "fork"]
    assert result.calls("fork") == [("llm", "main", "no_text"), ("llm", "main", "no_image")]


def test_what_a_loop_collects_is_what_its_committed_turns_gave() -> None:
    result, _, _ = draw(CAT, outputs=("words", "image"))
    assert result.calls("llm.read") == [{"text": "a cat"}, {"text": [1, 2]}]
    assert result.outputs["words"] == [1, 2]  # the turn that stopped gave 3, which nobody sees


def test_an_output_that_nobody_asked_for_is_not_collected() -> None:
    result, _, _ = draw(CAT)
    assert list(result.outputs) == ["image"]
