"""V-JEPA 2-AC: futures imagined under actions, and actions found for a goal. The declaration; no torch."""

from __future__ import annotations

from collections.abc import Generator
from types import MappingProxyType
from typing import Any

from walk_plugin_vjepa2.control import TICK, Controlling
from walk_plugin_vjepa2.shapes import PUBLISHED_WORLD_MODEL, Shape, read_shape
from walk_plugin_vjepa2.world_checks import check_options
from walk_plugin_vjepa2.world_options import WorldOptions
from walkserve_sdk import (
    BadRequest,
    Budget,
    Component,
    ContextLengthExceeded,
    Fan,
    Hub,
    Image,
    Loop,
    Model,
    Node,
    Outcome,
    Output,
    PagedKV,
    Record,
    Request,
    Step,
    Stream,
    Tensor,
    Track,
    Walk,
    WalkGraph,
    track,
)

_READ = (
    *("frames", "goal_frame", "past", "latent", "goal"),
    *("past_poses", "pose", "past_actions", "actions", "context_frames", "horizon"),
)
"""What the reader makes of a request; None where there is none of it."""


def _futures(predictor: Component, **to: Output) -> Fan:
    """Each candidate's actions one by one: what is seen next follows from what was seen, and done, before."""
    imagine = Node(
        predictor, "step", takes=("latent", "action", "pose"), gives=("latent", "pose"), to=to or None
    )
    return Fan(
        Loop(imagine, each={"action": "plan"}, carry=("latent", "pose")),
        over={"plan": "actions"},
    )


_LENGTH = {"rollout": "actions", "control": "context_frames"}
"""What decides how many frames a task needs, where it is not the horizon."""


class VJepa2AC(Controlling, Model):
    """What a robot would see if it acted so, and how it should act to see a goal."""

    inputs = ("video", "image", "tensor")
    own_surfaces = ("encodings", "rollouts", "plans", "control")
    length_option = "horizon"
    checkpoints = MappingProxyType(
        {
            "main": Hub(
                "",
                files=("*.pt",),
                in_folder=(),
                elsewhere=f"download {PUBLISHED_WORLD_MODEL} (11.7 GB) into a folder of its own",
            )
        }
    )
    variants = MappingProxyType({"toy": "toy"})
    Options = WorldOptions

    reader = Component("walk_plugin_vjepa2.reading:SceneReader", device="cpu")
    watcher = Component("walk_plugin_vjepa2.ticks:TickReader", device="cpu")
    encoder = Component("walk_plugin_vjepa2.encoder:FrameEncoder")
    predictor = Component("walk_plugin_vjepa2.predictor:ActionPredictor", kv=PagedKV())
    scorer = Component("walk_plugin_vjepa2.scoring:Scorer")
    planner = Component("walk_plugin_vjepa2.planner:Planner", state=True)
    charts = Component("walk_plugin_vjepa2.landscape:Landscape", device="cpu")

    ticks = Stream(by="client", limit=8, idle_s=60)

    latents = Output(Tensor())
    poses = Output(Tensor())
    energies = Output(Tensor())
    plan = Output(Record())
    progress = Output(Record(), many=True)
    plans = Output(Record(), many=True)
    refused = Output(Record(), many=True)
    landscape = Output(Record())
    picture = Output(Image())

    read = WalkGraph(Node(reader, "read", takes=("kinds", "names", "media"), gives=_READ))

    # What the graphs below are made of. What was observed goes into the cache once, and every candidate goes
    # on from a fork of it, for the client to see or not.
    _look = Node(encoder, "look", takes="frames", gives=("past", "latent"))
    _observe = Loop(
        Node(predictor, "observe", takes=("latent", "action", "pose")),
        each={"latent": "past", "action": "past_actions", "pose": "past_poses"},
    )
    _imagine = _futures(predictor)
    _show = _futures(predictor, latent=latents, pose=poses)
    _weigh = Node(scorer, "energy", takes=("latent", "goal"), gives="energies")
    _tell = Node(scorer, "energy", takes=("latent", "goal"), gives="energies", to=energies)

    look = WalkGraph(_look)
    encode = WalkGraph(
        _look, Node(encoder, "pool", takes=("past", "latent", "pooled"), gives="latents", to=latents)
    )
    rollout = WalkGraph(
        _observe,
        _show,
        Node(scorer, "energy", takes=("latent", "goal"), gives="energies", to=energies, when="scored"),
    )
    score = WalkGraph(_tell)
    # An iteration imagines every candidate; at last the plan itself is imagined, as a candidate alone.
    _seek = (
        _observe,
        Node(planner, "begin", takes=("seed", "tick"), gives="belief"),
        Loop(
            Node(
                planner,
                "propose",
                takes=("belief", "last_latent", "last_pose"),
                gives=("actions", "latent", "pose"),
            ),
            _imagine,
            _weigh,
            Node(
                planner,
                "refine",
                takes=("belief", "actions", "energies"),
                gives=("belief", "report"),
                to={"report": progress},
            ),
            carry="belief",
            times="iterations",
        ),
        Node(
            planner,
            "conclude",
            takes=("belief", "last_latent", "last_pose"),
            gives=("actions", "latent", "pose"),
        ),
    )
    search = WalkGraph(
        *_seek,
        _show,
        _tell,
        Node(planner, "sum_up", takes=("actions", "energies"), gives="plan", to=plan),
    )
    # Of a control loop: one tick of its client's, and a plan for it.
    watch = WalkGraph(
        Loop(
            Node(
                watcher,
                "tick",
                takes=(ticks, "before", "missed"),
                gives=(*TICK, "refused"),
                to={"refused": refused},
            ),
            carry=TICK,
            times=1,
        )
    )
    steer = WalkGraph(
        *_seek,
        _imagine,
        _weigh,
        Node(
            planner,
            "answer",
            takes=("actions", "energies", "tick", "used_seed", "context", "restarted"),
            gives="answer",
            to=plans,
        ),
        gives=(),
    )
    spread = WalkGraph(Node(charts, "grid", gives="actions"))
    survey = WalkGraph(_observe, _imagine, _weigh)
    chart = WalkGraph(
        Node(
            charts,
            "chart",
            takes=("energies", "planned"),
            gives=("landscape", "picture"),
            to={"landscape": landscape, "picture": picture},
        )
    )

    def setup(self) -> None:
        """Its frames bound what a request may observe and imagine."""
        folder = self.checkpoint.folders.get("main")
        self.shape = Shape() if folder is None else read_shape(folder)
        self.context = self.shape.steps * self.shape.step_tokens

    def check(self, request: Request) -> Request:
        return check_options(request)

    def warm_up(self) -> Request:
        from walk_plugin_vjepa2.warming import SMALL_PLAN, still_scene

        return self.request(parts=(still_scene(),), options=SMALL_PLAN)

    def prepare(self, request: Request) -> Walk:
        return self.read(
            kinds=[part.kind for part in request.parts],
            names=[part.name for part in request.parts],
            media=[part.data for part in request.parts],
        )

    def budget(self, request: Request, prepared: Outcome) -> Budget:
        """Frames that were observed before the last, then one for each step that is imagined."""
        observed, horizon = prepared["context_frames"], prepared["horizon"]
        if not horizon:
            return {}
        if observed + horizon > self.shape.steps:
            raise ContextLengthExceeded(
                f"{observed} observed frames and a horizon of {horizon} are {observed + horizon} frames, and "
                f"this model sees {self.shape.steps}; observe fewer, or shorten the horizon",
                param=_LENGTH.get(request.options.task, "horizon"),
            )
        if request.options.task == "rollout" and "horizon" in request.given:
            raise BadRequest(
                f"a rollout is as long as its actions, here {horizon} steps; leave horizon out",
                param="horizon",
            )
        tokens = self.shape.step_tokens
        return {self.predictor: ((observed - 1) * tokens, horizon * tokens)}

    def _scene(self, prepared: Outcome) -> Generator[Step, Outcome, tuple[Any, Any, Any]]:
        """Latents of what was seen before, seen last, and is wanted: those sent, or those of frames."""
        if "latent" in prepared:
            past, latent = prepared["past"], prepared["latent"]
        else:
            seen = yield self.look(frames=prepared["frames"])
            past, latent = seen["past"], seen["latent"]
        goal = prepared.get("goal")
        if goal is None and "goal_frame" in prepared:
            wanted = yield self.look(frames=prepared["goal_frame"])
            goal = wanted["latent"]
        return past, latent, goal

    @track
    def encoding(self, request: Request, prepared: Outcome) -> Track:
        if request.options.task == "encode":
            yield self.encode(frames=prepared["frames"], pooled=request.options.pooled)
        return None

    @track
    def imagining(self, request: Request, prepared: Outcome) -> Track:
        if request.options.task == "rollout":
            past, latent, goal = yield from self._scene(prepared)
            yield self.rollout(
                past=past,
                past_actions=prepared["past_actions"],
                past_poses=prepared["past_poses"],
                latent=latent,
                pose=prepared["pose"],
                actions=prepared["actions"],
                goal=[] if goal is None else goal,
                scored=goal is not None,
            )
        return None

    @track
    def scoring(self, request: Request, prepared: Outcome) -> Track:
        if request.options.task == "score":
            _, latent, goal = yield from self._scene(prepared)
            yield self.score(latent=latent, goal=goal)
        return None

    @track
    def planning(self, request: Request, prepared: Outcome) -> Track:
        """The plan first, so that the landscape can show it."""
        if request.options.task not in ("plan", "landscape"):
            return None
        past, last_latent, goal = yield from self._scene(prepared)
        planned: Any = []
        if request.options.task == "plan":
            found = yield self.search(
                past=past,
                past_actions=prepared["past_actions"],
                past_poses=prepared["past_poses"],
                last_latent=last_latent,
                last_pose=prepared["pose"],
                goal=goal,
                seed=request.seed,
                tick=None,
                iterations=request.options.iterations,
            )
            past, planned = [], found["actions"]  # what was observed is in the cache
        if request.options.landscape_axes:
            grid = yield self.spread()
            surveyed = yield self.survey(
                past=past,
                past_actions=prepared["past_actions"],
                past_poses=prepared["past_poses"],
                latent=last_latent,
                pose=prepared["pose"],
                actions=grid["actions"],
                goal=goal,
            )
            yield self.chart(energies=surveyed["energies"], planned=planned)
        return None

    @track
    def controlling(self, request: Request, prepared: Outcome) -> Track:
        if request.options.task != "control":
            return None
        return (yield from self.control(request, prepared))
