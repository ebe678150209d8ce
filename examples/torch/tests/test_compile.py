"""Calls of the backend from code that torch.compile has compiled. Of PyTorch 2: 1.13 does not compile."""

import unittest

import ranks  # before the others: it says where they are

import torch
import torch.distributed as dist

RANKS = 2


def calls(tensor):
    dist.broadcast(tensor, 1)
    dist.all_reduce(tensor)
    parts = [torch.zeros(3) for _ in range(RANKS)]
    dist.all_gather(parts, tensor + dist.get_rank())
    dist.barrier()
    return torch.cat(parts)


def compiled_calls():
    return torch.compile(calls, backend="eager")(torch.full((3,), dist.get_rank() + 1.0)).tolist()


def compiled_training():
    torch.manual_seed(7)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 2))
    compiled = torch.compile(model, backend="eager")
    for _ in range(2):  # the second one makes the buckets anew, which broadcasts
        compiled(torch.full((3, 4), dist.get_rank() + 1.0)).square().sum().backward()
    return [p.grad.tolist() for p in model.parameters()]


@unittest.skipUnless(hasattr(torch, "compile"), "this PyTorch does not compile")
class Compiled(unittest.TestCase):
    def setUp(self):
        ranks.require_library()
        torch.compile(abs, backend="eager")  # loads the compiler, before the ranks are forked

    def test_calls(self):
        self.assertEqual(ranks.all_good(ranks.run(RANKS, compiled_calls)), [[4.0] * 3 + [5.0] * 3] * RANKS)

    def test_training(self):
        ours, theirs = (ranks.all_good(ranks.run(RANKS, compiled_training, backend=b)) for b in ("lightpath", "gloo"))
        self.assertEqual(ours, theirs)


if __name__ == "__main__":
    unittest.main()
