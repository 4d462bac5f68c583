"""V-JEPA 2-AC: futures imagined under actions, and actions found for a goal. The declaration; no torch."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Any, Literal

from msgspec import Meta

from walk_plugin_vjepa2.shapes import PUBLISHED_WORLD_MODEL, Shape, read_shape
from walk_plugin_vjepa2.world_options import check_options
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
    Tensor,
    Track,
    Walk,
    WalkGraph,
    track,
)

Axis = Literal["x", "y", "z", "gripper"]
"""What a plan moves."""


class VJepa2AC(Model):
    """What a robot would see if it acted so, and how it should act to see a goal."""

    inputs = ("video", "image", "tensor")
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

    @dataclass(frozen=True)
    class Options(Model.Options):
        """What a client may choose; of planning, the defaults are the authors' planner's.

        Args:
            task: What to do: encode the frames, roll candidates' actions out, score the last frame by its
                distance to the goal, plan actions towards the goal, or only draw their energy landscape.
            pooled: One latent for each frame, the mean of its tokens; for task "encode".
            horizon: Steps that a plan has; with the frames observed, at most the model's frames.
            samples: Candidates that each iteration tries.
            iterations: How often the candidates are drawn anew, around the best so far.
            topk: How many of them are the best; two at least, for they have a spread.
            maxnorm: The furthest that a step moves along x, y or z, in metres.
            momentum_mean, momentum_std: How much of the mean and the spread before stays in the next; 0
                forgets them.
            momentum_mean_gripper, momentum_std_gripper: The same for the gripper.
            close_gripper: From this step on, counted from 0, the gripper closes; never when left out.
            landscape_axes: Draw the energy of one step over these axes too, "x", "y", "z" or "gripper";
                of two there is a picture. With task "landscape" and none given, x and y.
            landscape_range: How far the landscape goes, to both sides of no movement.
            landscape_points: Points of it along each axis.
        """

        task: Literal["encode", "rollout", "score", "plan", "landscape"] = "rollout"
        pooled: bool = False
        horizon: Annotated[int, Meta(ge=1, le=1024)] = 2
        samples: Annotated[int, Meta(ge=2, le=65_536)] = 400
        iterations: Annotated[int, Meta(ge=1, le=1000)] = 10
        topk: Annotated[int, Meta(ge=2, le=65_536)] = 10
        maxnorm: Annotated[float, Meta(gt=0, le=10)] = 0.05
        momentum_mean: Annotated[float, Meta(ge=0, le=1)] = 0.15
        momentum_std: Annotated[float, Meta(ge=0, le=1)] = 0.15
        momentum_mean_gripper: Annotated[float, Meta(ge=0, le=1)] = 0.15
        momentum_std_gripper: Annotated[float, Meta(ge=0, le=1)] = 0.15
        close_gripper: Annotated[int, Meta(ge=0)] | None = None
        landscape_axes: Annotated[tuple[Axis, ...], Meta(max_length=4)] = ()
        landscape_range: Annotated[float, Meta(gt=0, le=10)] = 0.075
        landscape_points: Annotated[int, Meta(ge=2, le=101)] = 9

    reader = Component("walk_plugin_vjepa2.reading:SceneReader", device="cpu")
    encoder = Component("walk_plugin_vjepa2.encoder:FrameEncoder")
    predictor = Component("walk_plugin_vjepa2.predictor:ActionPredictor", kv=PagedKV())
    scorer = Component("walk_plugin_vjepa2.scoring:Scorer")
    planner = Component("walk_plugin_vjepa2.planner:Planner", state=True)
    charts = Component("walk_plugin_vjepa2.landscape:Landscape", device="cpu")

    latents = Output(Tensor())
    poses = Output(Tensor())
    energies = Output(Tensor())
    plan = Output(Record())
    progress = Output(Record(), many=True)
    landscape = Output(Record())
    picture = Output(Image())

    read = WalkGraph(
        Node(
            reader,
            "read",
            takes=("kinds", "names", "media"),
            gives=(
                "frames",
                "goal_frame",
                "past",
                "latent",
                "goal",
                "past_poses",
                "pose",
                "past_actions",
                "actions",
                "context_frames",
                "horizon",
            ),
        )
    )
    look = WalkGraph(Node(encoder, "look", takes="frames", gives=("past", "latent")))
    encode = WalkGraph(
        Node(encoder, "look", takes="frames", gives=("past", "latent")),
        Node(encoder, "pool", takes=("past", "latent", "pooled"), gives="latents", to=latents),
    )
    # What was observed goes into the cache once; every candidate goes on from there.
    _observe = Loop(
        Node(predictor, "observe", takes=("latent", "action", "pose")),
        each={"latent": "past", "action": "past_actions", "pose": "past_poses"},
    )
    rollout = WalkGraph(
        _observe,
        Fan(
            Loop(
                Node(
                    predictor,
                    "step",
                    takes=("latent", "action", "pose"),
                    gives=("latent", "pose"),
                    to={"latent": latents, "pose": poses},
                ),
                each={"action": "plan"},
                carry=("latent", "pose"),
            ),
            over={"plan": "actions"},
        ),
        Node(scorer, "energy", takes=("latent", "goal"), gives="energies", to=energies, when="scored"),
    )
    score = WalkGraph(Node(scorer, "energy", takes=("latent", "goal"), gives="energies", to=energies))
    # An iteration imagines every candidate; at last the plan itself is imagined, as a candidate alone.
    search = WalkGraph(
        _observe,
        Node(planner, "begin", takes="seed", gives="belief"),
        Loop(
            Node(
                planner,
                "propose",
                takes=("belief", "last_latent", "last_pose"),
                gives=("actions", "latent", "pose"),
            ),
            Fan(
                Loop(
                    Node(predictor, "step", takes=("latent", "action", "pose"), gives=("latent", "pose")),
                    each={"action": "plan"},
                    carry=("latent", "pose"),
                ),
                over={"plan": "actions"},
            ),
            Node(scorer, "energy", takes=("latent", "goal"), gives="energies"),
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
        Fan(
            Loop(
                Node(
                    predictor,
                    "step",
                    takes=("latent", "action", "pose"),
                    gives=("latent", "pose"),
                    to={"latent": latents, "pose": poses},
                ),
                each={"action": "plan"},
                carry=("latent", "pose"),
            ),
            over={"plan": "actions"},
        ),
        Node(scorer, "energy", takes=("latent", "goal"), gives="energies", to=energies),
        Node(planner, "sum_up", takes=("actions", "energies"), gives="plan", to=plan),
    )
    spread = WalkGraph(Node(charts, "grid", gives="actions"))
    survey = WalkGraph(
        _observe,
        Fan(
            Loop(
                Node(predictor, "step", takes=("latent", "action", "pose"), gives=("latent", "pose")),
                each={"action": "plan"},
                carry=("latent", "pose"),
            ),
            over={"plan": "actions"},
        ),
        Node(scorer, "energy", takes=("latent", "goal"), gives="energies"),
    )
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
        from walk_plugin_vjepa2.warming import still_scene

        outputs = (self.latents, self.poses, self.energies)
        return self.request(outputs=outputs, parts=(still_scene(steps=2),), options={"seed": 0})

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
                param="tensor" if request.options.task == "rollout" else "horizon",
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
