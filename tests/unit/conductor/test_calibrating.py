"""From a warm-up that has passed to a model that is ready: workers that measure their budgets in between."""

from collections.abc import Callable
from typing import Any

from walkserve import messages as m

Desk = Any
PLAIN = "plain.rank0"
WARM = m.TokenBudget("tool", "look", 512, ((0, 96), (4000, 16)))


def load(it: Desk, incarnation: int = 1, *, calibrates: bool) -> dict[str, list[m.Message]]:
    return it.hear(
        m.WorkerReady(PLAIN, f"{PLAIN}.{incarnation}", 1, {"tool": "cpu"}, {}, calibrates=calibrates)
    )


def warm_up(it: Desk, said: dict[str, list[m.Message]], incarnation: int = 1) -> dict[str, list[m.Message]]:
    """The warm-up passes, and is closed; what is said then."""
    address = f"{PLAIN}.{incarnation}"
    (number,) = [one.number for one in said[address] if isinstance(one, m.StartWalk)]
    return it.hear(
        m.WalkEnded(number, "looking", 0, "end", 0, 0, {}, {}, {}, {}),
        m.RequestClosed(number, PLAIN, address),
    )


def standing(it: Desk) -> tuple[str, str]:
    (state,) = it.states()
    return state.phase, state.detail


def test_a_worker_measures_its_budgets_when_the_warm_up_has_passed_and_then_the_model_is_ready(
    desk: Callable[..., Desk],
) -> None:
    it = desk(plain=True)
    said = warm_up(it, load(it, calibrates=True))
    assert m.Calibrate() in said[f"{PLAIN}.1"]
    assert standing(it) == ("starting", "plain is calibrating")
    refused = it.submit(1, model="plain")["http"][0]
    assert isinstance(refused, m.RequestFailed) and refused.fault.status == 503
    it.hear(m.Calibrated(PLAIN, f"{PLAIN}.1", (WARM,)))
    (state,) = it.states()
    assert state.phase == "ready"
    budgets = {worker.name: worker.budgets for model in state.models for worker in model.workers}
    assert budgets == {"speaker.host": (), "speaker.rank0": (), PLAIN: (WARM,)}


def test_where_nothing_is_to_be_measured_there_is_no_further_hop(desk: Callable[..., Desk]) -> None:
    it = desk(plain=True)
    said = warm_up(it, load(it, calibrates=False))
    assert not any(isinstance(one, m.Calibrate) for messages in said.values() for one in messages)
    assert standing(it) == ("ready", "")


def test_a_worker_that_is_lost_while_it_measures_is_waited_for_when_it_is_back(
    desk: Callable[..., Desk],
) -> None:
    it = desk(plain=True)
    warm_up(it, load(it, calibrates=True))
    it.hear(m.WorkerLost(PLAIN, f"{PLAIN}.1", "was killed by SIGKILL"))
    again = load(it, 2, calibrates=True)
    it.hear(m.Calibrated(PLAIN, f"{PLAIN}.1", (WARM,)))  # a last word of who is gone
    said = warm_up(it, again, 2)
    assert m.Calibrate() in said[f"{PLAIN}.2"]
    assert standing(it) == ("starting", "plain is calibrating")
    it.hear(m.Calibrated(PLAIN, f"{PLAIN}.2", (WARM,)))
    assert standing(it) == ("ready", "")
