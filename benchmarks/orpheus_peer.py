"""The other side of ``orpheus.py``: ``transformers.generate``, then ``snac``, in a process of its own.

Written as the libraries are meant to be used: ``inference_mode``, a key-value cache, SDPA attention, one
``decode`` of all frames. The codec keeps weight norm unfolded, as ``SNAC.from_pretrained`` leaves it. It is
asked by lines of JSON on stdin and answers with lines on stdout.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import torch
from orpheus_checkpoint import CODES, FIRST_CODE, FRAME_SAMPLES, PAD, SLOTS, codes_of
from snac import SNAC
from torch import Tensor
from transformers import LlamaForCausalLM, LogitsProcessor, LogitsProcessorList

SAMPLING: dict[str, Any] = {"temperature": 0.6, "top_p": 0.8, "repetition_penalty": 1.3}


class Legal(LogitsProcessor):
    """Only codes of the frame position that is next."""

    def __init__(self, prompt: int) -> None:
        self._prompt = prompt

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        legal = codes_of((input_ids.shape[1] - self._prompt) % SLOTS)
        masked = torch.full_like(scores, -torch.inf)
        masked[:, legal] = scores[:, legal]
        return masked


class Peer:
    """Both models, and the two ways to run several requests: one after another, or as one padded batch."""

    def __init__(self, folder: str, dtype: str, *, masked: bool) -> None:
        self._language = LlamaForCausalLM.from_pretrained(
            folder, dtype=getattr(torch, dtype), attn_implementation="sdpa"
        ).eval()
        self._language.generation_config.eos_token_id = None  # never drawn, so neither side looks for it
        self._codec = SNAC.from_pretrained(f"{folder}/snac").eval()
        self._masked = masked
        self._batched_codec = True

    def warm_up(self, prompts: list[list[int]]) -> None:
        """Run everything once, and see which way the codec is faster on a batch."""
        self.batch(prompts, frames=2, seed=0)
        self.loop(prompts[:1], frames=2, seed=0)
        tokens = torch.zeros(len(prompts), SLOTS * 8, dtype=torch.int64) + FIRST_CODE
        tokens += CODES * (torch.arange(SLOTS * 8) % SLOTS)
        took = {}
        for batched in (True, False, True, False):
            self._batched_codec = batched
            began = time.perf_counter()
            self._speak(tokens)
            took[batched] = time.perf_counter() - began
        self._batched_codec = took[True] < took[False]

    def loop(self, prompts: list[list[int]], *, frames: int, seed: int) -> dict[str, Any]:
        """One request after another; a request's first sound is there when all of it is."""
        return self._timed([[prompt] for prompt in prompts], frames, seed)

    def batch(self, prompts: list[list[int]], *, frames: int, seed: int) -> dict[str, Any]:
        """All requests as one batch, padded on the left."""
        return self._timed([prompts], frames, seed)

    @torch.inference_mode()
    def _timed(self, groups: list[list[list[int]]], frames: int, seed: int) -> dict[str, Any]:
        torch.manual_seed(seed)
        samples, firsts = 0, []
        began, cpu = time.perf_counter(), time.process_time()
        for group in groups:
            sound = self._speak(self._write(group, frames))
            samples += sound.numel()
            firsts += [time.perf_counter() - began] * len(group)
        wall_s, cpu_s = time.perf_counter() - began, time.process_time() - cpu
        assert samples == sum(map(len, groups)) * frames * FRAME_SAMPLES, "an utterance was cut"
        return {"wall_s": wall_s, "cpu_s": cpu_s, "first_s": firsts, "samples": samples}

    def _write(self, prompts: list[list[int]], frames: int) -> Tensor:
        """(requests, 7 x frames) tokens."""
        longest = max(map(len, prompts))
        padded = torch.tensor([[PAD] * (longest - len(one)) + one for one in prompts])
        written = self._language.generate(
            padded,
            attention_mask=torch.tensor([[0] * (longest - len(one)) + [1] * len(one) for one in prompts]),
            max_new_tokens=SLOTS * frames,
            do_sample=True,
            top_k=0,
            **SAMPLING,
            use_cache=True,
            pad_token_id=PAD,
            logits_processor=LogitsProcessorList([Legal(longest)] if self._masked else []),
        )
        return written[:, longest:]

    @torch.inference_mode()
    def _speak(self, tokens: Tensor) -> Tensor:
        """(requests, samples)."""
        frames = tokens.view(len(tokens), -1, SLOTS) - FIRST_CODE - CODES * torch.arange(SLOTS)
        assert int(frames.min()) >= 0 and int(frames.max()) < CODES, "a token was at the wrong position"
        codes = [frames[..., slots].flatten(1) for slots in ([0], [1, 4], [2, 3, 5, 6])]
        if self._batched_codec:
            return self._codec.decode(codes)[:, 0]
        rows = range(len(tokens))
        return torch.cat([self._codec.decode([each[row : row + 1] for each in codes])[:, 0] for row in rows])


def main() -> None:
    settings = json.loads(sys.argv[1])
    torch.set_num_threads(settings["threads"])
    peer = Peer(settings["folder"], settings["dtype"], masked=settings["masked"])
    peer.warm_up(settings["prompts"])
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        run = peer.loop if asked.pop("way") == "loop" else peer.batch
        print(json.dumps(run(**asked)), flush=True)


if __name__ == "__main__":
    main()
