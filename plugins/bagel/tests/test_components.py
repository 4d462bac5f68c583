"""The components by themselves: what they are alone they are in a batch, and what they refuse to load."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from walk_plugin_bagel.grids import from_grid, to_grid
from walk_plugin_bagel.mot import BagelLM
from walk_plugin_bagel.positions import PositionTable, places
from walk_plugin_bagel.vae import ImageVAE
from walk_plugin_bagel.vit import ImageViT
from walkserve_sdk import Checkpoint, LoadError

GOLDEN = Path(__file__).parent / "data" / "golden"
CPU = {"device": torch.device("cpu"), "dtype": torch.float32}


def _latents(seed: int, rows: int = 3, columns: int = 5) -> torch.Tensor:
    return torch.randn(rows, columns, 64, generator=torch.Generator().manual_seed(seed))


# --- where tokens stand -------------------------------------------------------------------------------


def test_a_grid_and_back_is_the_same_image_and_a_token_holds_its_square_channels_innermost():
    image = torch.arange(2 * 4 * 6).view(2, 4, 6)
    grid = to_grid(image, 2)
    assert grid.shape == (2, 3, 8)
    assert torch.equal(from_grid(grid, 2), image)
    # row 1, column 2: pixels (2..3, 4..5), and of each both channels
    assert grid[1, 2].tolist() == [16, 40, 17, 41, 22, 46, 23, 47]


def test_tokens_stand_in_the_table_by_its_width_and_never_in_each_others_place():
    here = torch.device("cpu")
    assert places(2, 3, 4, here).tolist() == [0, 1, 2, 4, 5, 6]
    with pytest.raises(ValueError, match="positions for 4 x 4 tokens, not for 1 x 5"):
        PositionTable(4, 8).of_grid(1, 5)
    with pytest.raises(ValueError, match="not for 5 x 1"):
        PositionTable(4, 8).of_grid(5, 1)


# --- the language model -------------------------------------------------------------------------------


def test_text_counts_its_tokens_and_an_image_counts_one(bench, tokenizer):
    branch = bench.branch()
    bench.call("llm.prefill_text", branch, ids=tokenizer.block("A red fox"))
    assert (branch.table.length, branch.state) == (7, 7)
    bench.call("llm.prefill_vae", branch, latents=_latents(0))
    assert (branch.table.length, branch.state) == (7 + 17, 8)
    bench.call("llm.prefill_vit", branch, seen=torch.zeros(4, 64))
    assert (branch.table.length, branch.state) == (24 + 6, 9)
    bench.call("llm.velocity", branch, keeps=False, latents=_latents(1), t=0.5)
    assert (branch.table.length, branch.state) == (30, 9)
    fork = branch.fork()
    bench.call("llm.next", fork, ids=bench.call("pen.begin")["ids"])
    assert (fork.state, branch.state) == (10, 9)
    fork.drop()
    branch.drop()


def test_an_image_sees_all_of_itself_and_text_only_what_was_before(bench, tokenizer):
    """A later pixel changes what the first one becomes; a later word does not."""

    def first_key(call, values):
        branch = bench.branch()
        bench.call(call, branch, **values)
        key = bench.cache.k[-1][bench.cache.slots(branch.table, 2)].clone()
        branch.drop()
        return key[1]

    one, other = _latents(0), _latents(0)
    other[-1, -1] += 1
    assert not torch.equal(
        first_key("llm.prefill_vae", {"latents": one}), first_key("llm.prefill_vae", {"latents": other})
    )
    ids = tokenizer.block("A red fox"), tokenizer.block("A red for")
    assert torch.equal(*(first_key("llm.prefill_text", {"ids": each}) for each in ids))


def test_text_in_pieces_is_the_text_in_one(bench, tokenizer):
    ids = tokenizer.block("A red fox next to a glass teapot.")
    whole, pieces = bench.branch(), bench.branch()
    bench.call("llm.prefill_text", whole, ids=ids)
    for start in range(0, len(ids), 5):
        bench.call("llm.prefill_text", pieces, ids=ids[start : start + 5])
    assert pieces.state == whole.state == len(ids)
    keys = [bench.cache.k[:, bench.cache.slots(each.table, len(ids))] for each in (whole, pieces)]
    assert torch.allclose(*keys, atol=1e-5)
    whole.drop()
    pieces.drop()


def test_batched_equals_alone_to_the_bit_in_every_kind_of_call(checkpoint, make_bench):
    """Rows of one, two and three requests, images of different sizes: each is what it is alone."""
    bench = make_bench(checkpoint, pages=200, deterministic=True)
    texts = [[513, *range(20, 20 + length), 514] for length in (3, 9, 1)]
    images = [_latents(0), _latents(1, 2, 7), _latents(2, 1, 1)]

    def run(rows):
        """Keys of all that the rows have read, and the velocities and tokens they give."""
        branches = [bench.branch() for _ in rows]

        def call(name, values, keeps=True):
            asked = [(branch, values(row)) for branch, row in zip(branches, rows, strict=True)]
            return bench.rows(name, asked, keeps=keeps)

        call("llm.prefill_vae", lambda row: {"latents": images[row]})
        call("llm.prefill_text", lambda row: {"ids": texts[row]})
        call("llm.prefill_vit", lambda row: {"seen": images[row].flatten(0, 1)})
        velocity = call("llm.velocity", lambda row: {"latents": images[row], "t": 0.3 + row / 4}, keeps=False)
        token = call("llm.next", lambda row: {"ids": [513]})
        found = {}
        for branch, row, painted, written in zip(branches, rows, velocity, token, strict=True):
            keys = bench.cache.k[:, bench.cache.slots(branch.table, branch.table.length)].clone()
            found[row] = keys, painted["velocity"], written["ids"]
            branch.drop()
        return found

    alone = {}
    for row in range(3):
        alone |= run([row])
    for rows in ([0, 1], [2, 1, 0]):
        for row, (keys, velocity, token) in run(rows).items():
            assert torch.equal(keys, alone[row][0])
            assert torch.equal(velocity, alone[row][1])
            assert token == alone[row][2]


def test_writing_ends_where_the_text_ends_or_begins_anew(bench, said):
    llm = bench.parts["llm"].methods["next"].__self__
    ids = said["special_ids"]
    assert llm._stop == {ids["eos_token_id"]: "stop", ids["bos_token_id"]: "stop"}


# --- loading ------------------------------------------------------------------------------------------


@pytest.fixture
def copy(tmp_path: Path) -> Checkpoint:
    for path in GOLDEN.iterdir():
        shutil.copy(path, tmp_path / path.name)
    return Checkpoint({"main": tmp_path}, "a copy")


def _change(path: Path, change) -> None:
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path)


def test_all_that_is_stored_belongs_to_one_component_and_every_weight_is_there(settings):
    """139 tensors, as the published 1,223 but for the number of layers."""
    from walk_plugin_bagel import mot, vit

    stored = set(load_file(GOLDEN / "ema.safetensors"))
    with torch.device("meta"):
        painter, looker = mot.Weights(settings).state_dict(), vit.Weights(settings).state_dict()
    assert not painter.keys() & looker.keys()
    assert painter.keys() | looker.keys() == stored


@pytest.mark.parametrize("component", [BagelLM, ImageViT])
def test_a_tensor_that_nobody_knows_is_named(copy, component):
    _change(copy.file("ema.safetensors"), lambda tensors: tensors.update(strange=torch.zeros(1)))
    with pytest.raises(LoadError, match="unexpected: strange$"):
        component.load(copy, **CPU)


def test_tensors_that_are_missing_or_misshaped_are_named_by_the_component_that_needs_them(copy):
    gone = "language_model.model.layers.1.mlp_moe_gen.up_proj.weight"
    bent = "connector.fc1.weight"

    def change(tensors):
        del tensors[gone]
        tensors[bent] = tensors[bent][:, :-1].contiguous()

    _change(copy.file("ema.safetensors"), change)
    with pytest.raises(LoadError, match=f"missing: {gone}$"):
        BagelLM.load(copy, **CPU)
    with pytest.raises(LoadError, match=r"of another shape: connector.fc1.weight \(here \(64, 31\)"):
        ImageViT.load(copy, **CPU)


def test_of_the_vae_too_every_tensor_is_accounted_for(copy):
    path = copy.file("ae.safetensors")
    _change(
        path, lambda tensors: tensors.update({"loss.weight": torch.zeros(1), "encoder.quant": torch.zeros(1)})
    )
    with pytest.raises(LoadError, match="unexpected: encoder.quant, loss.weight$"):
        ImageVAE.load(copy, **CPU)
    shutil.copy(GOLDEN / path.name, path)
    _change(path, lambda tensors: tensors.pop("encoder.mid.attn_1.q.weight"))
    with pytest.raises(LoadError, match="missing: encoder.mid"):
        ImageVAE.load(copy, **CPU)


def test_a_file_that_is_cut_off_is_refused(copy):
    path = copy.file("ema.safetensors")
    path.write_bytes(path.read_bytes()[:1000])
    for component in (BagelLM, ImageViT):
        with pytest.raises(LoadError, match="download it again"):
            component.load(copy, **CPU)


def test_a_component_touches_no_tensors_but_its_own(copy, monkeypatch):
    """Of 29 GB each is read by the one process that holds it."""
    from walk_plugin_bagel import loading

    asked: list[str] = []
    opened = loading.safe_open

    class Watched:
        def __init__(self, *args, **kwargs):
            self._file = opened(*args, **kwargs)

        def __enter__(self):
            self._file.__enter__()
            return self

        def __exit__(self, *error):
            self._file.__exit__(*error)

        def keys(self):
            return self._file.keys()

        def get_tensor(self, name):
            asked.append(name)
            return self._file.get_tensor(name)

    monkeypatch.setattr(loading, "safe_open", Watched)
    ImageViT.load(copy, **CPU)
    assert {name.partition(".")[0] for name in asked} == {"vit_model", "connector", "vit_pos_embed"}


def test_a_context_is_as_long_as_the_language_models_file_says(copy):
    path = copy.file("llm_config.json")
    path.write_text(json.dumps(json.loads(path.read_text("utf-8")) | {"max_position_embeddings": 99}))
    shape = BagelLM.load(copy, **CPU).kv_shape
    assert (shape.layers, shape.kv_heads, shape.head_dim, shape.context) == (3, 2, 16, 99)
