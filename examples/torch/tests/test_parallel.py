"""What PyTorch 2 builds on process groups gives the same numbers over Lightpath as over Gloo: sharded parameters
(FSDP2), split layers and groups, pipelines, checkpoints of several ranks, and experts with uneven loads."""

import datetime
import os
import tempfile
import unittest

import ranks  # before the others: it says where they are

import torch
import torch.distributed as dist

if int(torch.__version__.split(".")[0]) < 2:
    raise unittest.SkipTest(f"PyTorch {torch.__version__} has no FSDP2, pipelining and checkpoints; PyTorch 2 has")

import torch.distributed.checkpoint as checkpoint
from torch.distributed._functional_collectives import all_to_all_single_autograd
from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
from torch.distributed.tensor import Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

RANKS, WIDTH, STEPS = 4, 24, 3


def layers(count):
    torch.manual_seed(7)
    return torch.nn.Sequential(
        *(torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.Tanh()) for _ in range(count))
    )


def batch(number, rows=8):
    return torch.randn(rows, WIDTH, generator=torch.Generator().manual_seed(number))


def sharded(shape):
    """A mesh of one axis (shards), or of two (copies of shards). Returns the parameters after some steps."""
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=("copies", "shards")[-len(shape) :])
    model = layers(3)
    for layer in model:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for step in range(STEPS):
        model(batch(step * RANKS + dist.get_rank())).square().sum().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    return [p.full_tensor().detach() for p in model.parameters()], model, optimizer


def sharded_parameters(shape):
    return [p.numpy() for p in sharded(shape)[0]]


def saved_and_loaded(directory):
    """Every rank writes its shards; other ranks' shapes of the same model read them."""
    want, model, optimizer = sharded((RANKS,))
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    checkpoint.save(state, checkpoint_id=directory)
    waits = checkpoint.async_save(state, checkpoint_id=f"{directory}-later")
    other = layers(3)
    for layer in other:
        torch.nn.init.zeros_(layer[0].weight)
        fully_shard(layer, mesh=init_device_mesh("cpu", (2, 2), mesh_dim_names=("copies", "shards")))
    waits.result()
    for at in (directory, f"{directory}-later"):
        read = {"model": other.state_dict()}
        checkpoint.load(read, checkpoint_id=at)
        other.load_state_dict(read["model"])
        for parameter, saved in zip(other.parameters(), want):
            full = parameter.full_tensor() if hasattr(parameter, "full_tensor") else parameter
            assert torch.equal(full, saved), "a loaded parameter is not the saved one"
    options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
    whole = dict(zip(other.state_dict(), want)) if dist.get_rank() == 0 else {}
    set_model_state_dict(other, {name: value + 1 for name, value in whole.items()}, options=options)
    for parameter, saved in zip(other.parameters(), want):
        assert torch.equal(parameter.full_tensor(), saved + 1), "a parameter is not the one of rank 0"
    return [p.numpy() for p in want]


def split_layers():
    """Gradients of two layers of which each rank has a part, and a tensor that is sharded by rows, then by columns."""
    mesh = init_device_mesh("cpu", (RANKS,))
    torch.manual_seed(7)
    model = torch.nn.Sequential(torch.nn.Linear(WIDTH, 2 * WIDTH), torch.nn.Tanh(), torch.nn.Linear(2 * WIDTH, WIDTH))
    model = parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    model(batch(1)).square().sum().backward()
    rows = distribute_tensor(batch(2, 10), mesh, [Shard(0)])
    columns = rows.redistribute(mesh, [Shard(1)])
    return [p.grad.full_tensor().numpy() for p in model.parameters()] + [columns.to_local().numpy()]


def pipeline(schedule):
    """Two pipelines of two stages: losses and gradients of the stage of this rank."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("copies", "stages"))
    group = mesh.get_group("stages")
    stage = group.rank()
    module = layers(4)[2 * stage : 2 * stage + 2]
    pipe = schedule(
        PipelineStage(module, stage, 2, torch.device("cpu"), group=group), n_microbatches=4,
        loss_fn=lambda output, target: (output - target).square().mean(),
    )  # fmt: skip
    losses = []
    if stage == 0:
        pipe.step(batch(1))
    else:
        pipe.step(target=batch(2), losses=losses)
    return [x.detach().numpy() for x in losses] + [p.grad.numpy() for p in module.parameters()]


def experts():
    """Each rank has one expert. A token's expert depends on the token, so ranks send different numbers of tokens."""
    rank = dist.get_rank()
    torch.manual_seed(rank)
    expert, tokens = torch.nn.Linear(WIDTH, WIDTH), batch(rank, 16 + 5 * rank).requires_grad_()
    order = (choice := tokens[:, 0].mul(10).long().abs() % (RANKS - 1)).argsort()  # none chooses the last one
    sent = choice.bincount(minlength=RANKS)
    dist.all_to_all_single(received := torch.empty_like(sent), sent)
    sent, received = sent.tolist(), received.tolist()
    inputs = all_to_all_single_autograd(tokens[order], received, sent, dist.group.WORLD)
    outputs = all_to_all_single_autograd(expert(inputs), sent, received, dist.group.WORLD)
    outputs.square().sum().backward()
    return [outputs.detach().numpy(), tokens.grad.numpy(), expert.weight.grad.numpy()]


def split_groups():
    """Sums in two groups that torch makes of the default one, each in its own order of ranks."""
    group = dist.split_group(split_ranks=[[2, 0], [1, 3]])
    tensor = torch.tensor([float(dist.get_rank())])
    dist.all_reduce(tensor, group=group)
    dist.broadcast(root := torch.tensor([float(dist.get_rank())]), group=group, group_src=0)
    return [tensor.numpy(), root.numpy()]


def monitored_barriers():
    """The second one lacks two ranks, which rank 0 names."""
    dist.monitored_barrier()
    said = ""
    if dist.get_rank() not in (1, 3):
        try:
            dist.monitored_barrier(timeout=datetime.timedelta(seconds=1), wait_all_ranks=True)
        except RuntimeError as error:
            said = str(error)
    dist.barrier()
    return said


class Parallel(unittest.TestCase):
    def setUp(self):
        ranks.require_library()

    def same(self, body, *args):
        gloo, ours = (ranks.all_good(ranks.run(RANKS, body, *args, backend=b)) for b in ("gloo", "lightpath"))
        for want, got in zip(gloo, ours):
            self.assertEqual(len(want), len(got))
            for w, g in zip(want, got):
                torch.testing.assert_close(torch.as_tensor(g), torch.as_tensor(w))  # orders of additions differ
        return ours

    def test_sharded_parameters(self):
        self.same(sharded_parameters, (RANKS,))

    def test_copies_of_shards(self):
        self.same(sharded_parameters, (2, 2))

    def test_split_layers(self):
        self.same(split_layers)

    def test_checkpoints(self):
        with tempfile.TemporaryDirectory() as directory:
            ranks.all_good(ranks.run(RANKS, saved_and_loaded, os.path.join(directory, "saved")))

    def test_split_groups(self):
        self.same(split_groups)

    def test_monitored_barriers(self):
        said = ranks.all_good(ranks.run(RANKS, monitored_barriers))
        self.assertRegex(said[0], r"ranks \[1, (2, )?3\] have not come to monitored_barrier 2")  # rank 2 may be late
        self.assertRegex(said[2], "rank 0 has not come to .*monitored_barrier 2")

    def test_pipelines(self):
        for schedule in (ScheduleGPipe, Schedule1F1B):
            self.same(pipeline, schedule)

    def test_experts(self):
        self.same(experts)


if __name__ == "__main__":
    unittest.main()
