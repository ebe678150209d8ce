"""Checks of works, and of the calls that the engine gets."""

import contextlib
import datetime
import threading
import unittest.mock

import ranks  # noqa: F401, before the others: it says where they are

import torch
import torch.distributed as dist
from lightpath.torch.engine import Engine
from lightpath.torch.work import Work, _kept
from values import same


@contextlib.contextmanager
def submitted():
    """Lists the calls that the engine gets: the title, and whether the caller waits at once."""
    submit, calls = Engine.submit, []

    def recorded(self, call, outputs, waits=False):
        calls.append((call.title, waits))
        return submit(self, call, outputs, waits)

    with unittest.mock.patch.object(Engine, "submit", recorded):
        yield calls


def threads():
    """Threads that begin to use tags at the same time."""
    me, size = dist.get_rank(), dist.get_world_size()
    if size == 1:
        return
    failures = []

    def messages():
        try:
            for tag in range(20):
                works = [dist.isend(torch.ones(1), (me + 1) % size, tag=tag)]
                works.append(dist.irecv(torch.zeros(1), (me - 1) % size, tag=tag))
                for work in works:
                    work.wait()
        except Exception as error:
            failures.append(error)

    started = [threading.Thread(target=messages, daemon=True) for _ in range(4)]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()
    assert not failures, failures


def works():
    tensor = torch.ones(3)
    work = dist.all_reduce(tensor, async_op=True)
    future = work.get_future().then(lambda f: f.value()[0] * 2)
    work.wait(datetime.timedelta(seconds=100))
    assert work.is_completed() and work.is_success()
    same(future.wait(), torch.full((3,), 2.0 * dist.get_world_size()))
    same(tensor, torch.full((3,), float(dist.get_world_size())))
    first, second, third = torch.ones(3), torch.ones(2), torch.ones(1)

    def waits(_):
        """Waits in a callback for a later call, whose callback waits for another."""
        work = dist.all_reduce(second, async_op=True)
        return work.get_future().then(lambda _: dist.all_reduce(third, async_op=True).wait()).wait()

    dist.all_reduce(first, async_op=True).get_future().then(waits).wait()
    for tensor_of_callback in (first, second, third):
        same(tensor_of_callback, torch.full_like(tensor_of_callback, float(dist.get_world_size())))
    alone = Work(None, [])  # no engine helps it
    threading.Timer(0.01, alone.complete).start()
    assert alone.wait() and alone.is_completed()
    objects = [None] * dist.get_world_size()
    dist.all_gather_object(objects, {"rank": dist.get_rank()})
    assert objects == [{"rank": r} for r in range(dist.get_world_size())]
    dist.barrier()
    # Works that nobody waits for, behind one that is not done.
    group, me = dist.distributed_c10d._get_default_group(), dist.get_rank()
    receive = group.recv([torch.zeros(1)], me, 9)
    for _ in range(2200):
        dist.all_reduce(tensor, async_op=True)
    dist.barrier()
    dist.all_reduce(tensor, async_op=True)
    assert len(_kept._works) <= _kept.LIMIT + 1, len(_kept._works)
    group.send([torch.zeros(1)], me, 9)
    receive.wait()


def waiting():
    """Only a caller of torch's functions that waits at once runs its call itself."""
    group, me, size = dist.distributed_c10d._get_default_group(), dist.get_rank(), dist.get_world_size()
    with submitted() as calls:
        dist.all_reduce(tensor := torch.ones(1))
        dist.broadcast(tensor, 0)
        dist.barrier()
        dist.reduce_scatter(torch.ones(me + 1), [torch.ones(r + 1) for r in range(size)])
        dist.all_reduce(tensor, async_op=True).wait()
        group.allreduce([tensor]).wait()
    asked = [waits for _, waits in calls]
    assert asked == [True, True, True, True, False, False], asked


def titles():
    """Calls have their own names in a profile, whatever functions of the library make them."""
    with submitted() as calls:
        for op in (dist.ReduceOp.SUM, dist.ReduceOp.BAND):
            dist.all_reduce(bits := torch.ones(1, dtype=torch.int32), op)
            dist.reduce(bits, 0, op)
            dist.reduce_scatter(bits.clone(), [bits] * dist.get_world_size(), op)
    titles = [title for title, _ in calls]
    assert titles == ["all_reduce", "reduce", "reduce_scatter"] * 2, titles
