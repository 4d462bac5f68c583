"""What conductor and workers have noted, put together: times from acceptance, sums, edges between workers."""

from walkserve.profiles.report import EdgeProfile, Notes, report
from walkserve.profiles.summary import edge_lines, method_lines


def test_times_are_microseconds_from_when_the_request_was_accepted(make):
    (call,) = make(turns=4).calls
    assert [(mark.what, mark.at_us) for mark in call.marks] == [
        ("submitted", 2000), ("prepared", 4000), ("admitted", 9000), ("ended", 45_000),
    ]  # fmt: skip
    steps = call.workers[0].steps
    assert (steps.ready_us[:2], steps.began_us[:2], steps.ended_us[:2]) == (
        [10_000, 15_000],
        [11_000, 16_000],
        [15_000, 20_000],
    )
    assert steps.turn == [0, 1, 2, 3] and steps.methods == ["model.next"] and steps.stream == [-1] * 4
    assert call.workers[1].steps.stream_wait_us == [10_000, 10_000]


def test_a_stream_between_two_workers_is_one_edge_with_both_its_ends(make):
    (call,) = make(turns=4).calls
    assert call.edges == [
        EdgeProfile("stream", "codes", "model", "codec", 4, 32),
        EdgeProfile("output", "speech", "codec", "client", 2, 4000),
        EdgeProfile("value", "write", "conductor", "toy.rank0", 1, 40),
        EdgeProfile("value", "write", "toy.rank0", "conductor", 1, 8),
    ]


def test_a_methods_time_is_told_with_its_share_of_the_requests(make):
    profile = make(turns=20)
    model, codec = profile.calls[0].methods
    assert (model.calls, model.busy_us, model.cost_us, model.mean_rows) == (20, 80_000, 40_000, 2.0)
    assert model.share == round(80_000 / profile.took_us, 4)
    assert (codec.stream_wait_us, codec.batch_wait_us) == (100_000, 10_000)


def test_what_is_known_so_far_is_told_and_called_incomplete(noted):
    notes = noted(4)
    del notes.parts["toy.rank1.0"]
    profile = report([notes], began_ns=0, took_s=1.0, first_output_s=None)
    assert not profile.complete and not profile.calls[0].complete
    assert [one.worker for one in profile.calls[0].workers] == ["toy.rank0"]
    nothing = report([Notes()], began_ns=0, took_s=0.0, first_output_s=None)
    assert not nothing.complete and nothing.calls[0].marks == []


def test_several_calls_are_summed_up_by_method_and_by_edge(make, noted):
    profile = make(noted(4), noted(4, tag=2, offset=100), turns=4)
    model, codec = method_lines(profile)
    assert (model.name, model.calls, model.busy_us, codec.calls) == ("model.next", 8, 32_000, 4)
    assert [(edge.name, edge.items) for edge in edge_lines(profile)][:2] == [("codes", 8), ("speech", 4)]
