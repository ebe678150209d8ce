"""Every call of torch.distributed that the backend takes, beside an answer computed without it."""

import functools
import unittest

import ranks  # before the others: it says where they are

import launch
import torch
import torch.distributed as dist
import works
from values import COPIED, OPS, REDUCED, SHAPES, every, reduced, same, strided, value


def reductions():
    me, size = dist.get_rank(), dist.get_world_size()
    for dtype in REDUCED:
        for op in OPS:
            for shape in SHAPES:
                for layout in (torch.clone, strided):
                    tensor = layout(value(me, shape, dtype))
                    dist.all_reduce(tensor, getattr(dist.ReduceOp, op))
                    same(tensor, reduced(op, shape, dtype))
                tensor = value(me, shape, dtype)
                dist.reduce(tensor, size - 1, getattr(dist.ReduceOp, op))
                if me == size - 1:
                    same(tensor, reduced(op, shape, dtype))
            parts = [strided(value(me + r, (3, 5), dtype)) for r in range(size)]
            output = torch.zeros(3, 5, dtype=dtype)
            dist.reduce_scatter(output, parts, getattr(dist.ReduceOp, op))
            same(
                output,
                functools.reduce(OPS[op], [value(r + me, (3, 5), dtype).double() for r in range(size)]).to(dtype),
            )
    average = value(me, (7,), torch.float32)
    dist.all_reduce(average, dist.ReduceOp.AVG)
    assert torch.allclose(average, reduced("SUM", (7,), torch.float32) / size)
    doubled = torch._C._distributed_c10d._make_nccl_premul_sum(2.0)
    if doubled.__getstate__() is not None:  # torch 1.13 does not tell the factor
        for layout in (torch.clone, strided):
            dist.all_reduce(tensor := layout(value(me, (7,), torch.float32)), doubled)
            same(tensor, 2 * reduced("SUM", (7,), torch.float32))
            dist.reduce(tensor := layout(value(me, (7,), torch.float32)), size - 1, doubled)
            same(tensor, 2 * reduced("SUM", (7,), torch.float32) if me == size - 1 else value(me, (7,), torch.float32))
        dist.reduce_scatter(tensor := torch.zeros(7), parts := [value(me, (7,), torch.float32)] * size, doubled)
        same(tensor, 2 * reduced("SUM", (7,), torch.float32))
        same(parts[0], value(me, (7,), torch.float32))
        dist.reduce_scatter_tensor(tensor := torch.zeros(7), torch.cat(parts), doubled)
        same(tensor, 2 * reduced("SUM", (7,), torch.float32))
    for op, combine in (("BAND", torch.bitwise_and), ("BOR", torch.bitwise_or), ("BXOR", torch.bitwise_xor)):
        bits = lambda rank: torch.tensor([[3, 5], [rank * 7, 1 << rank]])  # noqa: E731
        want = functools.reduce(combine, [bits(r) for r in range(size)])
        op = getattr(dist.ReduceOp, op)
        dist.all_reduce(tensor := strided(bits(me)), op)
        same(tensor, want)
        dist.reduce(tensor := bits(me), size - 1, op)
        same(tensor, want if me == size - 1 else bits(me))
        dist.reduce_scatter(tensor, [bits(me + r) for r in range(size)], op)
        same(tensor, functools.reduce(combine, [bits(r + me) for r in range(size)]))
    flags = torch.tensor([True, me == 0, False])
    dist.all_reduce(flags)
    same(flags, torch.tensor([True, True, False]))


def copies():
    me, size = dist.get_rank(), dist.get_world_size()
    for dtype in COPIED:
        for shape in SHAPES:
            for layout in (torch.clone, strided):
                tensor = layout(value(me, shape, dtype))
                dist.broadcast(tensor, size - 1)
                same(tensor, value(size - 1, shape, dtype))
                gathered = [layout(torch.zeros(shape, dtype=dtype)) for _ in range(size)]
                dist.all_gather(gathered, layout(value(me, shape, dtype)))
                for got, want in zip(gathered, every(shape, dtype)):
                    same(got, want)
                gathered = [layout(torch.zeros(shape, dtype=dtype)) for _ in range(size)]
                dist.gather(layout(value(me, shape, dtype)), gathered if me == 0 else None, 0)
                if me == 0:
                    for got, want in zip(gathered, every(shape, dtype)):
                        same(got, want)
                output = layout(torch.zeros(shape, dtype=dtype))
                dist.scatter(output, [layout(v) for v in every(shape, dtype)] if me == 0 else None, 0)
                same(output, value(me, shape, dtype))


def lazy():
    """Views that conjugate or negate what their memory holds."""
    me, size = dist.get_rank(), dist.get_world_size()
    numbers = torch.tensor([1 + 2j, 3 - 1j])
    conjugated = (numbers.conj() if me == 0 else torch.zeros_like(numbers)), torch.zeros_like(numbers).conj()
    for tensor in conjugated if torch.__version__ < "2" else ():  # later versions refuse them in dist.broadcast
        if me == 0:
            tensor.copy_(numbers.conj())
        dist.broadcast(tensor, 0)
        same(tensor.resolve_conj(), numbers.conj().resolve_conj())
    negative = torch._neg_view(value(me, (7,), torch.float32))
    dist.all_gather(gathered := [torch.zeros(7) for _ in range(size)], negative)
    for got, want in zip(gathered, every((7,), torch.float32)):
        same(got, -want)
    dist.all_reduce(negative, dist.ReduceOp.MAX)
    same(negative.resolve_neg(), -reduced("MIN", (7,), torch.float32))


class ElsewhereByDefault(torch.overrides.TorchFunctionMode):
    """As torch.set_default_device of torch 2."""

    def __torch_function__(self, function, _, args=(), kwargs=None):
        if function in (torch.empty, torch.zeros, torch.tensor):
            kwargs = {"device": "meta", **(kwargs or {})}
        return function(*args, **(kwargs or {}))


def default_device():
    me, size = dist.get_rank(), dist.get_world_size()
    own, parts = value(me, (7,), torch.int32), [torch.zeros(7, dtype=torch.int32) for _ in range(size)]
    few = torch.ones(2).to_sparse()
    with ElsewhereByDefault():
        dist.all_gather(parts, own)
        dist.all_reduce(own, dist.ReduceOp.BOR)
        dist.all_reduce(few)
        dist.barrier()
    same(torch.stack(parts), torch.stack(every((7,), torch.int32)))
    same(own, functools.reduce(torch.bitwise_or, every((7,), torch.int32)))
    same(few.to_dense(), torch.full((2,), float(size)))


def exchanges():
    me, size = dist.get_rank(), dist.get_world_size()
    for dtype in COPIED:
        for layout in (torch.clone, strided):
            # Row d of rank s is for d.
            def rows(rank):
                return torch.stack([value(rank + 3 * d, (5,), dtype) for d in range(size)])

            output = layout(torch.zeros(size, 5, dtype=dtype))
            dist.all_to_all_single(output, layout(rows(me)))
            same(output, torch.stack([rows(r)[me] for r in range(size)]))
            # From s to d go s + 2d rows, none from 0 to 0.
            sent, received = [me + 2 * d for d in range(size)], [s + 2 * me for s in range(size)]
            output = layout(torch.zeros(sum(received), 3, dtype=dtype))
            source = torch.cat([value(me + d, (n, 3), dtype) for d, n in enumerate(sent)])
            dist.all_to_all_single(output, layout(source), received, sent)
            same(output, torch.cat([value(s + me, (n, 3), dtype) for s, n in enumerate(received)]))
            outputs = [layout(torch.zeros(n, dtype=dtype)) for n in received]
            dist.all_to_all(outputs, [layout(value(me + d, (n,), dtype)) for d, n in enumerate(sent)])
            for s, n in enumerate(received):
                same(outputs[s], value(s + me, (n,), dtype))


def flat():
    """The forms that FSDP uses, and uneven lists, which NCCL's backend takes too."""
    me, size = dist.get_rank(), dist.get_world_size()
    into = getattr(dist, "all_gather_into_tensor", None) or dist._all_gather_base
    scatter = getattr(dist, "reduce_scatter_tensor", None) or dist._reduce_scatter_base
    output = torch.zeros(size * 6)
    into(output, value(me, (6,), torch.float32))
    same(output, torch.cat(every((6,), torch.float32)))
    mine = torch.zeros(6)
    scatter(mine, value(me, (size * 6,), torch.float32))
    same(mine, reduced("SUM", (size * 6,), torch.float32)[6 * me : 6 * me + 6])
    outputs = [torch.zeros(r + 1) for r in range(size)]
    dist.all_gather(outputs, value(me, (me + 1,), torch.float32))
    for r, got in enumerate(outputs):
        same(got, value(r, (r + 1,), torch.float32))
    mine = torch.zeros(me + 1)
    dist.reduce_scatter(mine, [value(me, (r + 1,), torch.float32) for r in range(size)])
    same(mine, reduced("SUM", (me + 1,), torch.float32))


def sparse():
    """Ranks have different numbers of elements, rank 0 none, in places that overlap."""
    me, size = dist.get_rank(), dist.get_world_size()

    def of(rank, dtype):
        places = torch.stack([torch.arange(rank), torch.zeros(rank, dtype=torch.int64)])
        return torch.sparse_coo_tensor(places, value(rank, (rank, 3), dtype), (size, 2, 3))

    for dtype in (torch.float32, torch.int16):
        tensor = of(me, dtype)
        work = dist.all_reduce(tensor, async_op=True)
        dist.all_reduce(after := torch.ones(1))
        work.wait()
        same(tensor.to_dense(), sum(of(r, dtype).to_dense() for r in range(size)))
        same(after, torch.full((1,), float(size)))
    if size > 1:
        try:
            dist.all_reduce(torch.ones(2, me + 1).to_sparse())
        except RuntimeError as error:
            assert "shape" in str(error), error
        else:
            raise AssertionError("a sum of sparse tensors of different shapes succeeded")


def short_forms():
    """The methods of a group with tensors instead of lists."""
    group, me, size = dist.distributed_c10d._get_default_group(), dist.get_rank(), dist.get_world_size()
    mine, all_of_them = value(me, (7,), torch.float32), every((7,), torch.float32)
    group.allreduce(tensor := mine.clone()).wait()
    same(tensor, reduced("SUM", (7,), torch.float32))
    group.allreduce([tensor := mine.clone()], dist.ReduceOp.MAX).wait()
    same(tensor, reduced("MAX", (7,), torch.float32))
    group.reduce(tensor := mine.clone(), size - 1, op=dist.ReduceOp.MIN).wait()
    same(tensor, reduced("MIN", (7,), torch.float32) if me == size - 1 else mine)
    group.broadcast(tensor := mine.clone(), root=size - 1).wait()
    same(tensor, all_of_them[-1])
    group.allgather(parts := [torch.zeros(7) for _ in range(size)], mine).wait()
    same(torch.stack(parts), torch.stack(all_of_them))
    group.gather(parts := [torch.zeros(7) for _ in range(size)] if me == 0 else [], mine, 0).wait()
    if me == 0:
        same(torch.stack(parts), torch.stack(all_of_them))
    group.scatter(tensor := torch.zeros(7), all_of_them if me == 0 else [], 0).wait()
    same(tensor, mine)
    group.reduce_scatter(tensor := torch.zeros(7), all_of_them, dist.ReduceOp.SUM).wait()
    same(tensor, mine * size)


def coalesced():
    group, me, size = dist.distributed_c10d._get_default_group(), dist.get_rank(), dist.get_world_size()
    tensors = [value(me, (n,), torch.float32) for n in (1, 7, 64)]
    group.allreduce_coalesced(tensors).wait()
    with torch.profiler.profile():
        group.allreduce_coalesced([]).wait()
    for tensor in tensors:
        same(tensor, reduced("SUM", tuple(tensor.shape), torch.float32))
    lists = [[torch.zeros(3), torch.zeros(4)] for _ in range(size)]
    group.allgather_coalesced(lists, [value(me, (3,), torch.float32), value(me, (4,), torch.float32)]).wait()
    for r in range(size):
        same(lists[r][0], value(r, (3,), torch.float32))
        same(lists[r][1], value(r, (4,), torch.float32))
    first, second = value(me, (5,), torch.float32), value(me, (2,), torch.int64)
    group._start_coalescing()
    group.allreduce([first])
    group._allgather_base(output := torch.zeros(2 * size, dtype=torch.int64), second)
    group._end_coalescing().wait()
    same(first, reduced("SUM", (5,), torch.float32))
    same(output, torch.cat(every((2,), torch.int64)))


def messages():
    me, size = dist.get_rank(), dist.get_world_size()
    group, mine, received = dist.distributed_c10d._get_default_group(), torch.ones(3), [torch.zeros(3), torch.zeros(3)]
    started = [group.recv([received[0]], me, 1), group.send([mine * 2], me, 2), group.send([mine], me, 1)]
    started.append(group.recv([received[1]], me, 2))
    for work in started:
        work.wait()
    same(torch.cat(received), torch.tensor([1.0, 1, 1, 2, 2, 2]))
    group.send([mine], me, 3)
    try:
        group.recv([torch.zeros(4)], me, 3).wait()
    except RuntimeError as error:
        assert "3 elements" in str(error) and "of 4" in str(error), error
    else:
        raise AssertionError("a message of 3 elements to itself was received as 4")
    if size == 1:
        return
    before, after = (me - 1) % size, (me + 1) % size
    # Receives first, in both directions, many under way: no order of waiting may matter.
    received = [torch.zeros(257), strided(torch.zeros(257))]
    started = [dist.irecv(received[0], before), dist.irecv(received[1], after)]
    started += [dist.isend(value(me, (257,), torch.float32), peer) for peer in (after, before)]
    for work in started:
        work.wait()
    same(received[0], value(before, (257,), torch.float32))
    same(received[1], value(after, (257,), torch.float32))
    numbers = [torch.zeros(1, dtype=torch.int64) for _ in range(20)]
    started = [dist.irecv(n, before) for n in numbers] + [dist.isend(torch.tensor([i]), after) for i in range(20)]
    for work in started:
        work.wait()
    assert [int(n) for n in numbers] == list(range(20)), numbers
    tagged = [dist.irecv(received[0], before, tag=5), dist.irecv(received[1], before, tag=6)]
    for tag in (6, 5):  # the receives wait in the other order
        dist.send(value(tag, (257,), torch.float32), after, tag=tag)
    for work in tagged:
        work.wait()
    same(received[0], value(5, (257,), torch.float32))
    same(received[1], value(6, (257,), torch.float32))
    ops = [dist.P2POp(dist.irecv, received[0], after), dist.P2POp(dist.isend, value(me, (257,), torch.float32), before)]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    same(received[0], value(after, (257,), torch.float32))


def groups():
    """Groups of some of the ranks, made by all."""
    me, size = dist.get_rank(), dist.get_world_size()
    members = list(range(0, size, 2))
    group = dist.new_group(members)
    if me in members:
        tensor = torch.tensor([float(me)])
        dist.all_reduce(tensor, group=group)
        same(tensor, torch.tensor([float(sum(members))]))


def mistakes():
    """A wrong call raises, says why, and leaves the group as it was."""
    group, size = dist.distributed_c10d._get_default_group(), dist.get_world_size()
    uneven, more = [torch.zeros(r + 1) for r in range(size)], [torch.zeros(1)] * (size + 1)
    for call, says in (
        (lambda: dist.all_gather(uneven, torch.ones(size + 1)), "all_gather"),
        (lambda: dist.reduce_scatter(torch.ones(size + 1), uneven), "reduce_scatter"),
        (lambda: group.gather([more], [torch.ones(1)], dist.get_rank()), "gather"),
        (lambda: group.scatter([torch.ones(1)], [more], dist.get_rank()), "scatter"),
        (lambda: dist.all_to_all(more, more), "parts"),
        (lambda: dist.all_to_all_single(torch.ones(1), torch.ones(1), [1] + [0] * size, [1] + [0] * size), "parts"),
        (lambda: group.allgather_coalesced([[torch.ones(1)]] * size, more[:1] * 2), "longer"),
        (lambda: group.recv([torch.ones(2).to_sparse()], dist.get_rank()), "strided"),
        (lambda: dist.all_reduce(torch.ones(2), dist.ReduceOp.BAND), "float32"),
        (lambda: dist.all_reduce(torch.ones(2, dtype=torch.int16)), "int16"),
        (lambda: dist.broadcast(torch.ones(2, 2).to_sparse(), 0), "strided"),
        (lambda: dist.all_reduce(torch.ones(2, 2).to_sparse(), dist.ReduceOp.MAX), "sum"),
        (lambda: group.recv_anysource([torch.ones(1)], 0), "source"),
        (lambda: group.broadcast([torch.ones(1)], root(dist.get_world_size())).wait(), "root"),
    ):
        try:
            call()
        except (NotImplementedError, ValueError, RuntimeError) as error:
            assert says in str(error), error
        else:
            raise AssertionError(f"a call that should fail for its {says} succeeded")
    reductions_of_one = torch.ones(1)
    dist.all_reduce(reductions_of_one)
    same(reductions_of_one, torch.full((1,), float(dist.get_world_size())))


def root(rank):
    opts = dist.BroadcastOptions()
    opts.rootRank, opts.rootTensor = rank, 0
    return opts


EVERYTHING = (
    reductions, copies, lazy, default_device, exchanges, flat, sparse, short_forms, coalesced, messages, works.threads,
    works.works, works.waiting, works.titles, groups, mistakes,
)  # fmt: skip


def checks(*all_checks):
    for check in all_checks:
        try:
            check()
        except Exception as error:
            raise AssertionError(f"{check.__name__}: {error}") from error


class Backend(unittest.TestCase):
    def setUp(self):
        ranks.require_library()

    def test_one_rank(self):
        ranks.all_good(ranks.run(1, checks, *EVERYTHING))

    def test_two_ranks(self):
        ranks.all_good(ranks.run(2, checks, *EVERYTHING))

    def test_three_ranks_over_two_tcp_planes(self):
        ranks.all_good(ranks.run(3, checks, *EVERYTHING, env={"LIGHTPATH_TRANSPORT": "tcp", "LIGHTPATH_PLANES": "2"}))

    def test_four_ranks(self):
        ranks.all_good(ranks.run(4, checks, *EVERYTHING))

    def test_four_ranks_over_circuits(self):
        """Groups of two, those of messages among them, have the ports of their ranks; the rest of the types and
        shapes is the library's to test."""
        with launch.optical_fabric(4, reconfig="200us") as env:
            ranks.all_good(ranks.run(4, checks, flat, messages, groups, mistakes, env=env))


if __name__ == "__main__":
    unittest.main()
