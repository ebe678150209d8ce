"""Tensors of ranks, and answers that are computed without the backend."""

import functools

import ranks  # noqa: F401, before the others: it says where they are

import torch
import torch.distributed as dist

REDUCED = (
    torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.uint8, torch.int32, torch.int64,
)  # fmt: skip
COPIED = REDUCED + (torch.bool, torch.int16, torch.complex64)
OPS = {
    "SUM": torch.add,
    "PRODUCT": torch.mul,
    "MAX": torch.maximum,
    "MIN": torch.minimum,
}
SHAPES = ((), (1,), (7,), (3, 5), (1031,), (0,))


def value(rank, shape, dtype):
    """Rank's tensor: small integers, so that no type rounds and sums and products of 4 ranks fit."""
    count = int(torch.tensor(shape).prod()) if shape else 1
    return ((torch.arange(count) * 5 + rank * 2) % 3 + 1).to(dtype).reshape(shape)


def every(shape, dtype):
    return [value(r, shape, dtype) for r in range(dist.get_world_size())]


def reduced(op, shape, dtype):
    return functools.reduce(OPS[op], [v.to(torch.float64) for v in every(shape, dtype)]).to(dtype)


def same(got, want):
    if want.dtype == torch.bool:  # as bytes: a 2 would be equal to True
        got, want = got.contiguous().view(torch.uint8), want.contiguous().view(torch.uint8)
    assert got.dtype == want.dtype and torch.equal(got, want), f"{got.flatten()[:8]}, want {want.flatten()[:8]}"


def strided(tensor):
    """The same values in memory with gaps."""
    wide = torch.zeros(tensor.shape + (2,), dtype=tensor.dtype)
    wide[..., 0] = tensor
    return wide[..., 0]
