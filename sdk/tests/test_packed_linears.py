"""Packed linear layers multiply as torch's own do."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from walkserve_sdk.nn import PackedLinear, pack_linears

TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 1e-1}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(1,), (0,), (8,), (1, 33)])
def test_it_is_the_same_product(dtype, bias, shape):
    torch.manual_seed(0)
    layer = nn.Linear(96, 200, bias=bias, dtype=dtype)
    x = torch.randn(*shape, 96, dtype=dtype)
    expected = layer(x)
    y = PackedLinear(layer.weight, layer.bias)(x)
    assert (y.dtype, y.shape) == (expected.dtype, expected.shape)
    assert torch.allclose(y, expected, atol=TOLERANCE.get(dtype, 1e-12))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_two_rows_or_more_get_the_same_bits_in_any_batch(dtype):
    torch.manual_seed(0)
    for inputs, outputs in ((512, 1536), (1536, 512), (256, 4097)):
        packed = PackedLinear(torch.randn(outputs, inputs, dtype=dtype))
        x = torch.randn(65, inputs, dtype=dtype)
        every = packed(x)
        for start, stop in ((0, 2), (0, 4), (3, 8), (1, 64)):
            assert torch.equal(packed(x[start:stop].clone()), every[start:stop])


def test_every_linear_layer_inside_a_module_is_packed_and_holds_no_plain_weight():
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(8, 8), nn.Sequential(nn.SiLU(), nn.Linear(8, 4, bias=False)))
    x = torch.randn(3, 8)
    expected = module(x)
    pack_linears(module)
    assert [type(child) for child in module.modules() if hasattr(child, "out_features")] == [PackedLinear] * 2
    assert list(module.parameters()) == []
    assert torch.allclose(module(x), expected, atol=1e-6)
