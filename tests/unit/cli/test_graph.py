"""``walkserve graph``: a picture on stdout or in a file."""


def test_mermaid_goes_to_stdout_unless_told_otherwise(shelf):
    run = shelf.run("graph", "orpheus")
    assert run.code == 0
    assert run.out.startswith("flowchart LR\n")
    assert run.heavy == []


def test_a_file_that_ends_in_svg_is_one(shelf, tmp_path):
    run = shelf.run("graph", "orpheus:toy", "--out", tmp_path / "orpheus.svg")
    assert (run.code, run.out) == (0, "")
    drawn = (tmp_path / "orpheus.svg").read_text()
    assert drawn.startswith("<svg ")
    assert drawn == shelf.run("graph", "orpheus", "--format", "svg").out
    shelf.run("graph", "orpheus", "--format", "mermaid", "--out", tmp_path / "odd.svg")
    assert (tmp_path / "odd.svg").read_text().startswith("flowchart")


def test_a_family_that_is_not_served_yet_is_drawn_all_the_same(shelf):
    shelf.add(
        "fan",
        "from walkserve_sdk import Component, Fan, Model, Node, Output, Text, WalkGraph, track\n"
        "class Fan_(Model):\n"
        "    part = Component('nowhere:Part')\n"
        "    out = Output(Text())\n"
        "    go = WalkGraph(Fan(Node(part, 'go', takes='x', gives='y', to=out), over={'x': 'xs'}))\n"
        "    @track\n"
        "    def going(self, request, prepared):\n"
        "        yield self.go(xs=[1])\n",
        target="walk_plugin_fan:Fan_",
    )
    assert "once per row: x of xs" in shelf.run("graph", "fan", "--format", "svg").out


def test_a_file_that_cannot_be_written_is_told_in_one_line(shelf, tmp_path):
    run = shelf.run("graph", "orpheus", "--out", tmp_path / "nowhere" / "a.svg")
    assert (run.code, len(run.errors.splitlines())) == (1, 1)
    assert "No such file or directory" in run.errors
    assert shelf.run("graph", "orphus").code == 2
