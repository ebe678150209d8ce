#!/usr/bin/env python3
"""What a small all_reduce takes in PyTorch beyond ncclAllReduce itself.

    lightpath run -n 2 -- python3 overhead.py

Each round times a series of calls in every way, one way after the other. So other load affects all ways alike. Prints
medians over rounds, quartiles, and the processor time of rank 0's thread:

    nccl       ncclAllReduce by ctypes, with arguments made before
    torch      all_reduce of a group that does nothing: PyTorch's own share
    lightpath  all_reduce
    async      all_reduce with async_op, then wait: another thread begins the call
    gloo       all_reduce of PyTorch's Gloo, which uses TCP over loopback"""

import argparse
import statistics
import time

import lightpath.torch
import torch
import torch.distributed as dist
from lightpath.torch.work import Work


class Nothing(lightpath.torch.LightpathProcessGroup):
    """A group whose calls are complete at once."""

    def allreduce(self, tensors, opts=None):
        return self.done

    done = Work(None, [])
    done.complete()


def ways(size):
    """Functions that make so many calls, by their names."""
    tensor = torch.zeros(size // 4)
    group = dist.distributed_c10d._get_default_group()
    pointer, comm = tensor.data_ptr(), group._engines[None]._comm
    function, arguments = group._nccl.lib.ncclAllReduce, (pointer, pointer, tensor.numel(), 7, 0, comm, None)
    store = dist.PrefixStore("nothing", dist.distributed_c10d._get_default_store())
    nothing = Nothing.create(store, dist.get_rank(), dist.get_world_size(), group._timeout)

    def nccl(calls):
        for _ in range(calls):
            function(*arguments)

    def synchronous(group):
        def run(calls):
            for _ in range(calls):
                dist.all_reduce(tensor, group=group)

        return run

    def asynchronous(calls):
        for _ in range(calls):
            dist.all_reduce(tensor, group=group, async_op=True).wait()

    return {
        "nccl": nccl,
        "torch": synchronous(nothing),
        "lightpath": synchronous(group),
        "async": asynchronous,
        "gloo": synchronous(dist.new_group(backend="gloo")),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=1024, help="bytes")
    parser.add_argument("--calls", type=int, default=200, help="in one series")
    parser.add_argument("--rounds", type=int, default=101)
    parser.add_argument("--ways", default="nccl,torch,lightpath,async,gloo", help="nccl first")
    args = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("lightpath")
    known = ways(args.size)
    timed = {name: known[name] for name in args.ways.split(",")}
    wall, processor = ({name: [] for name in timed} for _ in range(2))
    for turn in range(args.rounds + 1):
        for name, run in timed.items():
            dist.barrier()
            cpu, start = time.thread_time_ns(), time.perf_counter_ns()
            run(args.calls)
            if turn:  # the first one warms up
                wall[name].append((time.perf_counter_ns() - start) / args.calls / 1e3)
                processor[name].append((time.thread_time_ns() - cpu) / args.calls / 1e3)
    if dist.get_rank() == 0:
        print(f"PyTorch {torch.__version__}, {dist.get_world_size()} ranks, {args.size} bytes, us per call")
        print("way        median  quartiles     beyond nccl  quartiles     processor")
        for name in timed:
            beyond = [took - nccl for took, nccl in zip(wall[name], wall["nccl"])]
            middle, more = statistics.quantiles(wall[name]), statistics.quantiles(beyond)
            print(
                f"{name:9}  {middle[1]:6.1f}  {middle[0]:5.1f} {middle[2]:5.1f}  {more[1]:12.1f}"
                f"  {more[0]:5.1f} {more[2]:5.1f}  {statistics.median(processor[name]):10.1f}"
            )
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
