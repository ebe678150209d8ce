"""The process group: torch.distributed's calls as calls of the library.

A group has one communicator for its collectives. Point-to-point calls have one per pair, direction and tag, made
when first used: so a send never waits behind a receive or behind another tag, as with Gloo."""

import datetime
import os
import threading
import types
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C import _distributed_c10d as c10d

from . import tensors as t
from .call import Call, Function
from .engine import Engine, library, limit_of
from .forms import short_form, waits
from .loop import Loop
from .rendezvous import Meeting, check_left, leave, meet
from .tensors import Combined, Source, Target
from .work import Work

# None: collectives; (source, destination, tag): messages.
Key = tuple[int, int, int] | None

# The memory of a rank that takes no part on one side of a call.
NOTHING: Any = types.SimpleNamespace(pointer=None, tensors=(), direct=True)


class LightpathProcessGroup(dist.ProcessGroup):
    """A group of ranks. Calls return at once; they run in order on a thread of the group's. Inputs are read,
    and outputs written, until the call's work is done."""

    def __init__(self, store: Any, rank: int, size: int, timeout: datetime.timedelta) -> None:
        super().__init__(rank, size)
        self._store, self._rank, self._size, self._timeout = store, rank, size, timeout
        self._sequence = self._barriers = 0
        self._group_name = self._description = ""
        # Calls between _start_coalescing and _end_coalescing.
        self._coalescing: list[tuple[Call, Sequence[Any]]] | None = None
        self._nccl = library()
        # The library reads its environment when the core loads: the first group of a process decides.
        os.environ.setdefault("LIGHTPATH_TIMEOUT", f"{max(1, int(timeout.total_seconds()))}s")
        self._limit = limit_of(timeout)
        self._loop = Loop(f"rank {rank} of {size}", timeout)
        self._engines: dict[Key, Engine] = {}
        self._making = threading.Lock()  # held while an engine of messages is made
        self._finalizer = weakref.finalize(self, leave, self._engines, store, rank)
        self._engines[None] = Engine(
            lambda closing: (size, self._exchange_id(closing), rank), f"rank {rank} of {size}", self._limit
        )
        self._engines[None].connected()

    @classmethod
    def create(cls, store: Any, rank: int, size: int, timeout: datetime.timedelta) -> "LightpathProcessGroup":
        """The creation function for register_backend."""
        return cls(store, rank, size, timeout)

    def _exchange_id(self, closing: threading.Event) -> bytes:
        meeting = Meeting(self._store, self._timeout, closing)
        if self._rank == 0:
            return meeting.offer("id", range(1, self._size))
        return meeting.take("id", self._rank, 0)

    # Names and numbers.

    def rank(self) -> int:
        return self._rank

    def size(self) -> int:
        return self._size

    def name(self) -> str:
        return "lightpath"

    getBackendName = _get_backend_name = name
    supports_coalescing = False  # of messages: they are independent of each other anyway
    supports_splitting = True
    _device_types = [torch.device("cpu")]  # torch 2 asks for it before checkpoints, states and splits

    def _get_backend(self, device: Any) -> "LightpathProcessGroup":
        return self

    # What C++ asks of a group in torch 2, by these names.

    def setGroupName(self, name: str) -> None:
        self._group_name = name

    def getGroupName(self) -> str:
        return self._group_name

    def setGroupDesc(self, description: str) -> None:
        self._description = description

    def getGroupDesc(self) -> str:
        return self._description

    def _set_sequence_number_for_group(self) -> None:
        self._sequence = 0

    def _get_sequence_number_for_group(self) -> int:
        return self._sequence

    def get_group_store(self) -> Any:
        return self._store

    def split_group(
        self, ranks: list[int], timeout: Any, opts: Any, group_name: str, group_desc: str | None, device_types: Any
    ) -> "LightpathProcessGroup | None":
        """Returns the group of these ranks of this one, None on other ranks."""
        if self._rank not in ranks:
            return None
        store = dist.PrefixStore(f"split/{group_name}", self._store)
        group = LightpathProcessGroup(store, ranks.index(self._rank), len(ranks), timeout)
        group._set_group_name(group_name)
        group._set_group_desc(group_desc or "")
        return group

    def shutdown(self) -> None:
        """Ends the group's communicators."""
        self._finalizer()

    abort = shutdown

    # Running.

    def _submit(
        self,
        title: str,
        functions: Sequence[Function],
        outputs: Sequence[Any],
        *memory: Any,
        opts: Any = None,
        following: Callable[[], Call] | None = None,
    ) -> Work | None:
        """Submits a collective with torch's options. When it is complete, its targets are delivered."""
        self._sequence += 1
        call = Call(title, functions, memory, following)
        if self._coalescing is not None:
            self._coalescing.append((call, outputs))
            return None
        return self._engines[None].submit(call, outputs, waits(opts))

    def _start_coalescing(self, device: Any = None) -> None:
        self._coalescing = []

    def _end_coalescing(self, requests: Any = None) -> Work:
        """Submits the coalesced calls as one group."""
        parts, self._coalescing = self._coalescing or [], None
        whole = Call(
            "coalesced",
            [f for call, _ in parts for f in call.functions],
            [m for call, _ in parts for m in call.memory],
        )
        outputs = [o for _, out in parts for o in out]
        if not parts:
            work = Work(None, [])
            work.complete()
            return work
        return self._engines[None].submit(whole, outputs)

    # Reductions.

    def _all_reduce(self, tensor: Tensor, op: Any) -> tuple[Function, tuple[Any, ...]]:
        """A function of the library, and the memory that it uses."""
        if hash(op) in t.COMPOSED:
            if combine := t.bitwise(tensor, op):
                target = Combined(tensor, self._size, combine)
                function, source = self._all_gather(target, tensor)
                return function, (source, target)
            op, (summand,) = t.premultiplied(op, tensor)
            tensor.detach().copy_(summand)
        memory = Target(tensor, keep=True)
        dtype, number = t.reduction(tensor, op)
        return (self._nccl.ncclAllReduce, memory.pointer, memory.pointer, tensor.numel(), dtype, number), (memory,)

    @short_form(c10d.AllreduceOptions, 1, "op", "timeout")
    def allreduce(self, tensors: list[Tensor], opts: Any = None) -> Work | None:
        if tensors[0].layout is torch.sparse_coo:
            return self._all_reduce_sparse(tensors[0], opts)
        return self.allreduce_coalesced(tensors, opts)

    def _all_reduce_sparse(self, tensor: Tensor, opts: Any) -> Work | None:
        """The ranks tell how many elements they have, then gather indices and values. Each adds them up."""
        if self._coalescing is not None or (opts is not None and opts.reduceOp != dist.ReduceOp.SUM):
            raise NotImplementedError("lightpath: sparse tensors have only a sum, outside of coalesced calls")
        total = t.SparseSum(tensor, self._size)
        function, source = self._all_gather(total.facts, total.fact)

        def gather() -> Call:
            functions: list[Function] = []
            memory: list[Any] = [total]
            for parts, own in total.parts():
                more, source, targets = self._broadcasts(parts, own)
                functions += more
                memory += (source, *targets)
            return Call("all_reduce", functions, memory)

        return self._submit("all_reduce", [function], [tensor], source, total.facts, opts=opts, following=gather)

    def allreduce_coalesced(self, tensors: list[Tensor], opts: Any = None) -> Work | None:
        op = opts.reduceOp if opts is not None else dist.ReduceOp.SUM
        functions: list[Function] = []
        memory: list[Any] = []
        for tensor in tensors:
            function, used = self._all_reduce(tensor, op)
            functions.append(function)
            memory += used
        return self._submit("all_reduce", functions, tensors, *memory, opts=opts)

    @short_form(c10d.ReduceOptions, 1, "root", "op", "timeout")
    def reduce(self, tensors: list[Tensor], opts: Any) -> Work | None:
        (tensor,), root = tensors, opts.rootRank
        if combine := t.bitwise(tensor, opts.reduceOp):
            source, target = Source(tensor), Combined(tensor, self._size, combine) if root == self._rank else NOTHING
            function: Function = (self._nccl.ncclGather, source.pointer, target.pointer, *t.copied(tensor), root)
            return self._submit("reduce", [function], tensors, source, target, opts=opts)
        op, (summand,) = t.premultiplied(opts.reduceOp, tensor)
        dtype, number = t.reduction(tensor, op)
        source, target = Source(summand), Target(tensor) if root == self._rank else NOTHING
        function = (self._nccl.ncclReduce, source.pointer, target.pointer, tensor.numel(), dtype, number, root)
        return self._submit("reduce", [function], tensors, source, target, opts=opts)

    def _reduce_scatter(self, output: Tensor, source: Source, op: Any) -> tuple[Function, Target]:
        if source.memory.numel() != output.numel() * self._size:
            raise ValueError(
                f"lightpath: reduce_scatter of {source.memory.numel()} elements into {output.numel()} "
                f"on {self._size} ranks"
            )
        t.check(output, source.memory)
        if combine := t.bitwise(output, op):
            combined = Combined(output, self._size, combine)
            return (self._nccl.ncclAlltoAll, source.pointer, combined.pointer, *t.copied(output)), combined
        target = Target(output)
        dtype, number = t.reduction(output, op)
        return (self._nccl.ncclReduceScatter, source.pointer, target.pointer, output.numel(), dtype, number), target

    @short_form(c10d.ReduceScatterOptions, 2, "op", "timeout")
    def reduce_scatter(self, outputs: list[Tensor], inputs: list[list[Tensor]], opts: Any) -> Work | None:
        (output,), (given,) = outputs, inputs
        op, parts = t.premultiplied(opts.reduceOp, *given)
        if len({p.numel() for p in parts}) > 1 and not t.bitwise(output, op):
            return self._reduce_scatter_uneven(output, parts, op, opts)
        source = Source(*parts)
        function, target = self._reduce_scatter(output, source, op)
        return self._submit("reduce_scatter", [function], outputs, source, target, opts=opts)

    def _reduce_scatter_uneven(self, output: Tensor, parts: Sequence[Tensor], op: Any, opts: Any) -> Work | None:
        self._check_parts("reduce_scatter", parts, output)
        dtype, number = t.reduction(output, op)
        target, sources = Target(output), [Source(p) for p in parts]
        functions = []
        for root, source in enumerate(sources):
            result = target.pointer if root == self._rank else None
            functions.append(
                (self._nccl.ncclReduce, source.pointer, result, source.memory.numel(), dtype, number, root)
            )
        return self._submit("reduce_scatter", functions, [output], target, *sources, opts=opts)

    def reduce_scatter_single(self, output: Tensor, source: Tensor, opts: Any = None) -> Work | None:
        return self.reduce_scatter_single_coalesced([output], [source], opts)

    def reduce_scatter_single_coalesced(
        self, outputs: list[Tensor], inputs: Sequence[Tensor], opts: Any = None
    ) -> Work | None:
        op, inputs = t.premultiplied(opts.reduceOp if opts is not None else dist.ReduceOp.SUM, *inputs)
        sources = [Source(i) for i in inputs]
        functions, targets = zip(*(self._reduce_scatter(o, s, op) for o, s in zip(outputs, sources, strict=True)))
        return self._submit("reduce_scatter", functions, outputs, *sources, *targets, opts=opts)

    _reduce_scatter_base = reduce_scatter_single
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    # Copies.

    @short_form(c10d.BroadcastOptions, 1, "root", "timeout")
    def broadcast(self, tensors: list[Tensor], opts: Any) -> Work | None:
        (tensor,) = tensors
        memory = Target(tensor, keep=True)
        count, dtype = t.copied(tensor)
        function = (self._nccl.ncclBroadcast, memory.pointer, memory.pointer, count, dtype, opts.rootRank)
        return self._submit("broadcast", [function], tensors, memory, opts=opts)

    def _all_gather(self, target: Target, tensor: Tensor) -> tuple[Function, Source]:
        t.check(tensor, *target.tensors)
        if target.memory.numel() != tensor.numel() * self._size:
            raise ValueError(
                f"lightpath: all_gather of {tensor.numel()} elements from each of {self._size} ranks "
                f"into {target.memory.numel()}"
            )
        source = Source(tensor)
        count, dtype = t.copied(tensor)
        return (self._nccl.ncclAllGather, source.pointer, target.pointer, count, dtype), source

    def _check_parts(self, call: str, parts: Sequence[Tensor], own: Tensor, equal: bool = False) -> None:
        """Raises unless each rank has a part, and that of this rank the size of its own tensor. equal: all parts must
        have that size."""
        sizes = [p.numel() for p in parts]
        if len(sizes) != self._size or any(n != own.numel() for n in (sizes if equal else [sizes[self._rank]])):
            raise ValueError(
                f"lightpath: {call} of parts of {sizes} elements on {self._size} ranks, "
                f"where rank {self._rank} has {own.numel()}"
            )
        t.check(own, *parts)

    @short_form(c10d.AllgatherOptions, 2, "timeout")
    def allgather(self, outputs: list[list[Tensor]], inputs: list[Tensor], opts: Any = None) -> Work | None:
        (parts,), (tensor,) = outputs, inputs
        if len({p.numel() for p in parts}) > 1:
            self._check_parts("all_gather", parts, tensor)
            functions, source, targets = self._broadcasts(parts, tensor)
            return self._submit("all_gather", functions, outputs, source, *targets, opts=opts)
        target = Target(*parts)
        function, source = self._all_gather(target, tensor)
        return self._submit("all_gather", [function], outputs, source, target, opts=opts)

    def _broadcasts(self, parts: list[Tensor], tensor: Tensor) -> tuple[list[Function], Source, list[Target]]:
        """From each rank its tensor, into the rank's part."""
        source, targets = Source(tensor), [Target(p) for p in parts]
        functions = []
        for root, target in enumerate(targets):
            send = source.pointer if root == self._rank else None
            functions.append((self._nccl.ncclBroadcast, send, target.pointer, *t.copied(target.memory), root))
        return functions, source, targets

    def all_gather_single(self, output: Tensor, source: Tensor, opts: Any = None) -> Work | None:
        return self.all_gather_single_coalesced([output], [source], opts)

    def all_gather_single_coalesced(self, outputs: list[Tensor], inputs: list[Tensor], opts: Any = None) -> Work | None:
        targets = [Target(o) for o in outputs]
        functions, sources = zip(*(self._all_gather(o, i) for o, i in zip(targets, inputs, strict=True)))
        return self._submit("all_gather", functions, outputs, *sources, *targets, opts=opts)

    _allgather_base = all_gather_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced

    def allgather_coalesced(
        self, output_lists: list[list[Tensor]], inputs: list[Tensor], opts: Any = None
    ) -> Work | None:
        """output_lists[r][i] becomes rank r's inputs[i]."""
        targets = [Target(*parts) for parts in zip(*output_lists)]
        functions, sources = zip(*(self._all_gather(o, i) for o, i in zip(targets, inputs, strict=True)))
        return self._submit("all_gather", functions, output_lists, *sources, *targets, opts=opts)

    @short_form(c10d.GatherOptions, 2, "root", "timeout")
    def gather(self, outputs: list[list[Tensor]], inputs: list[Tensor], opts: Any) -> Work | None:
        (tensor,) = inputs
        source, target = Source(tensor), NOTHING
        if self._rank == opts.rootRank:
            self._check_parts("gather", outputs[0], tensor, equal=True)
            target = Target(*outputs[0])
        function = (self._nccl.ncclGather, source.pointer, target.pointer, *t.copied(tensor), opts.rootRank)
        return self._submit("gather", [function], outputs, source, target, opts=opts)

    def gather_single(self, output: Tensor, tensor: Tensor, opts: Any) -> Work | None:
        return self.gather([list(output.chunk(self._size))] if self._rank == opts.rootRank else [], [tensor], opts)

    gather_into_tensor = gather_single

    @short_form(c10d.ScatterOptions, 2, "root", "timeout")
    def scatter(self, outputs: list[Tensor], inputs: list[list[Tensor]], opts: Any) -> Work | None:
        (output,) = outputs
        target, source = Target(output), NOTHING
        if self._rank == opts.rootRank:
            self._check_parts("scatter", inputs[0], output, equal=True)
            source = Source(*inputs[0])
        function = (self._nccl.ncclScatter, source.pointer, target.pointer, *t.copied(output), opts.rootRank)
        return self._submit("scatter", [function], outputs, target, source, opts=opts)

    def all_to_all_single(
        self,
        output: Tensor,
        source: Tensor,
        output_splits: Sequence[int] = (),
        input_splits: Sequence[int] = (),
        opts: Any = None,
    ) -> Work | None:
        received, sent = Target(output), Source(source)
        t.check(output, source)
        if not output_splits and not input_splits:
            if output.numel() != source.numel() or source.numel() % self._size:
                raise ValueError(
                    f"lightpath: all_to_all of {source.numel()} elements into {output.numel()} on {self._size} ranks"
                )
            count, dtype = t.copied(source)
            function = (self._nccl.ncclAlltoAll, sent.pointer, received.pointer, count // self._size, dtype)
            return self._submit("all_to_all", [function], [output], sent, received, opts=opts)
        sends = sent.memory.split(self._rows(source, input_splits))
        # Memory that is not direct is flat.
        receives = received.memory.view(output.shape).split(self._rows(output, output_splits))
        functions = self._exchange(sends, receives)
        return self._submit("all_to_all", functions, [output], sent, received, opts=opts)

    alltoall_base = all_to_all_single

    def _one_each(self, parts: Sequence[Any]) -> list[Any]:
        if len(parts) != self._size:
            raise ValueError(f"lightpath: all_to_all of {len(parts)} parts on {self._size} ranks")
        return list(parts)

    def _rows(self, tensor: Tensor, splits: Sequence[int]) -> list[int]:
        return self._one_each(splits) if splits else [len(tensor) // self._size] * self._size

    def alltoall(self, outputs: list[Tensor], inputs: list[Tensor], opts: Any = None) -> Work | None:
        self._one_each(outputs)
        self._one_each(inputs)
        sources, targets = [Source(i) for i in inputs], [Target(o) for o in outputs]
        functions = self._exchange([s.memory for s in sources], [o.memory for o in targets])
        return self._submit("all_to_all", functions, outputs, *sources, *targets, opts=opts)

    def _exchange(self, sends: Iterable[Tensor], receives: Iterable[Tensor]) -> list[Function]:
        """Grouped sends and receives with every rank, itself included."""
        functions = []
        for peer, (send, receive) in enumerate(zip(sends, receives)):
            functions.append((self._nccl.ncclSend, send.data_ptr(), *t.copied(send), peer))
            functions.append((self._nccl.ncclRecv, receive.data_ptr(), *t.copied(receive), peer))
        return functions

    def barrier(self, opts: Any = None) -> Work | None:
        memory = Target(torch.zeros(1, dtype=torch.uint8, device="cpu"))
        function = (self._nccl.ncclAllReduce, memory.pointer, memory.pointer, 1, t.BYTES, t.SUM)
        return self._submit("barrier", [function], [], memory, opts=opts)

    def monitored_barrier(self, timeout: datetime.timedelta | None = None, wait_all_ranks: bool = False) -> None:
        """A barrier through the store. Rank 0 names all ranks that have not come; then the others do not pass."""
        self._barriers += 1
        try:
            meet(self._store, f"monitored_barrier {self._barriers}", self._rank, self._size, timeout or self._timeout)
        except TimeoutError as e:
            raise RuntimeError(f"lightpath rank {self._rank} of {self._size}: {e}") from None

    # Messages.

    def send(self, tensors: list[Tensor], destination: int, tag: int = 0) -> Work:
        (tensor,) = tensors
        if destination == self._rank:
            return self._loop.post(True, tensor, tag)
        source = Source(tensor)
        function = (self._nccl.ncclSend, source.pointer, *t.copied(tensor), 1)
        return self._channel(self._rank, destination, tag).submit(Call("send", [function], (source,)), tensors)

    def recv(self, tensors: list[Tensor], source: int, tag: int = 0) -> Work:
        (tensor,) = tensors
        if source == self._rank:
            return self._loop.post(False, tensor, tag)
        target = Target(tensor)
        function = (self._nccl.ncclRecv, target.pointer, *t.copied(tensor), 0)
        return self._channel(source, self._rank, tag).submit(Call("recv", [function], (target,)), tensors)

    def recv_anysource(self, tensors: list[Tensor], tag: int = 0) -> Work:
        raise NotImplementedError("lightpath: NCCL has no receive from any source; name the source")

    def _channel(self, source: int, destination: int, tag: int) -> Engine:
        """The engine of messages with a tag from source to destination: rank 0 of its communicator sends."""
        key = (source, destination, tag)
        with self._making:
            if key not in self._engines:
                label = f"rank {self._rank} of {self._size}, messages {source} -> {destination}, tag {tag}"
                self._engines[key] = Engine(
                    lambda closing: (2, self._channel_id(key, closing), int(destination == self._rank)),
                    label,
                    self._limit,
                )
            engine = self._engines[key]
        if not self._finalizer.alive:
            engine.close()  # it has been made after the end of the group: its calls fail
        return engine

    def _channel_id(self, key: tuple[int, int, int], closing: threading.Event) -> bytes:
        """The id of a pair's communicator, which the sender makes."""
        source, destination, _ = key
        peer, group = destination if source == self._rank else source, self._engines[None]

        def check() -> None:
            group.check()  # a peer that has died never comes
            check_left(self._store, group.uid, peer)

        name, meeting = "messages/" + "/".join(map(str, key)), Meeting(self._store, self._timeout, closing, check)
        if source == self._rank:
            return meeting.offer(name, [destination])
        return meeting.take(name, destination, source)
