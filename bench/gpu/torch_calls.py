#!/usr/bin/env python3
"""One rank of PyTorch's own nccl backend: its collectives on CUDA tensors beside answers computed without it, and a
CUDA graph of them. With --device cpu it is examples/torch's backend for host memory, without graphs. So this program is
tried where there is no GPU."""

import argparse
import os
import sys

import torch
import torch.distributed as dist

TYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.uint8, torch.int32, torch.int64]
COUNTS = [1, 1000, 262144 + 3]


def pattern(rank, count, dtype, device):
    """Small whole numbers, so that sums are exact in every type."""
    return ((torch.arange(count, device=device) * 3 + rank) % 4).to(dtype)


class Checks:
    def __init__(self):
        self.made = 0

    def same(self, got, want, what):
        if got.is_cuda:
            torch.cuda.synchronize()
        if not torch.equal(got, want):
            wrong = (got != want).sum().item()
            raise SystemExit(f"rank {dist.get_rank()}: {what}: {wrong} of {got.numel()} elements are wrong")
        self.made += 1


def reductions(check, rank, world, count, dtype, device):
    everyone = [pattern(r, count, dtype, device) for r in range(world)]
    stack = torch.stack(everyone).to(torch.float64)
    answers = {
        dist.ReduceOp.SUM: stack.sum(0),
        dist.ReduceOp.MAX: stack.amax(0),
        dist.ReduceOp.MIN: stack.amin(0),
        dist.ReduceOp.PRODUCT: stack.prod(0),
    }
    for op, answer in answers.items():
        x = everyone[rank].clone()
        dist.all_reduce(x, op)
        check.same(x, answer.to(dtype), f"all_reduce {op} of {count} {dtype}")
    x = everyone[rank].clone()
    dist.reduce(x, world - 1)
    if rank == world - 1:
        check.same(x, answers[dist.ReduceOp.SUM].to(dtype), f"reduce of {count} {dtype}")
    whole = torch.cat([pattern(rank + k, count, dtype, device) for k in range(world)])
    part = torch.empty(count, dtype=dtype, device=device)
    dist.reduce_scatter_tensor(part, whole)
    want = sum(pattern(r + rank, count, torch.float64, device) for r in range(world))
    check.same(part, want.to(dtype), f"reduce_scatter of {count} {dtype}")


def copies(check, rank, world, count, dtype, device):
    mine = pattern(rank, count, dtype, device)
    gathered = torch.empty(world * count, dtype=dtype, device=device)
    dist.all_gather_into_tensor(gathered, mine)
    check.same(
        gathered, torch.cat([pattern(r, count, dtype, device) for r in range(world)]), f"all_gather of {count} {dtype}"
    )
    x = mine.clone()
    dist.broadcast(x, 1 % world)
    check.same(x, pattern(1 % world, count, dtype, device), f"broadcast of {count} {dtype}")
    whole = torch.cat([pattern(rank * world + k, count, dtype, device) for k in range(world)])
    got = torch.empty_like(whole)
    dist.all_to_all_single(got, whole)
    check.same(
        got,
        torch.cat([pattern(r * world + rank, count, dtype, device) for r in range(world)]),
        f"all_to_all of {count} {dtype}",
    )
    received = torch.empty_like(mine)
    ends = [dist.P2POp(dist.isend, mine, (rank + 1) % world), dist.P2POp(dist.irecv, received, (rank - 1) % world)]
    for work in dist.batch_isend_irecv(ends):
        work.wait()
    check.same(received, pattern((rank - 1) % world, count, dtype, device), f"send and receive of {count} {dtype}")


def graphs(check, rank, world, device):
    """Captures collectives once and replays them, with eager collectives in between."""
    x = torch.zeros(5000, device=device)
    y = torch.zeros(5000 * world, device=device)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        dist.all_reduce(x)
        dist.all_gather_into_tensor(y, x + rank)
    for turn in range(1, 6):
        x.fill_(turn * (rank + 1))
        graph.replay()
        total = float(turn * world * (world + 1) // 2)
        check.same(x, torch.full_like(x, total), f"replay {turn} of all_reduce")
        check.same(
            y,
            total + torch.arange(world, device=device).repeat_interleave(5000).float(),
            f"replay {turn} of all_gather",
        )
        z = torch.full((7,), float(rank), device=device)
        dist.all_reduce(z)
        check.same(z, torch.full_like(z, world * (world - 1) / 2), f"all_reduce between replays {turn}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    device = torch.device(parser.parse_args().device)
    if device.type == "cuda":
        torch.cuda.set_device(0)
        dist.init_process_group("nccl")
    else:
        sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "packaging", "python"))
        import lightpath.torch

        dist.init_process_group(lightpath.torch.BACKEND)
    rank, world, check = dist.get_rank(), dist.get_world_size(), Checks()
    for dtype in TYPES:
        for count in COUNTS:
            reductions(check, rank, world, count, dtype, device)
            copies(check, rank, world, count, dtype, device)
    if device.type == "cuda":
        graphs(check, rank, world, device)
    dist.barrier()
    dist.destroy_process_group()
    print(f"{check.made} checks", flush=True)


if __name__ == "__main__":
    main()
