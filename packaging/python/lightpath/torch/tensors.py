"""Types and operators of the library, and memory of tensors that it can run over."""

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.distributed import ReduceOp

# ncclDataType_t. Booleans travel as bytes.
TYPES = {
    torch.int8: 0, torch.uint8: 1, torch.bool: 1, torch.int32: 2, torch.int64: 4,
    torch.float16: 6, torch.float32: 7, torch.float64: 8, torch.bfloat16: 9,
}  # fmt: skip
BYTES = TYPES[torch.uint8]

SUM, PROD, MAX, MIN, AVG = range(5)
OPS = (
    (ReduceOp.SUM, SUM), (ReduceOp.PRODUCT, PROD), (ReduceOp.MAX, MAX), (ReduceOp.MIN, MIN), (ReduceOp.AVG, AVG),
)  # fmt: skip
# An operator is found by its hash, which is its number: torch 1.13 takes 0.6 us to compare two operators.
# ncclDataType_t and ncclRedOp_t, by operator and type.
REDUCTIONS = {(hash(op), dtype): (TYPES[dtype], number) for op, number in OPS for dtype in TYPES}
REDUCTIONS[hash(ReduceOp.SUM), torch.bool] = BYTES, MAX  # a sum of bytes could be 2, which is no boolean
del REDUCTIONS[hash(ReduceOp.AVG), torch.bool]
# NCCL has no bitwise operators: ranks send their tensors, and each computes its result.
BITWISE = {
    hash(ReduceOp.BAND): torch.bitwise_and, hash(ReduceOp.BOR): torch.bitwise_or,
    hash(ReduceOp.BXOR): torch.bitwise_xor,
}  # fmt: skip
PREMULTIPLIED = hash(ReduceOp.PREMUL_SUM)
COMPOSED = {*BITWISE, PREMULTIPLIED}  # of NCCL's functions


def bitwise(tensor: Tensor, op: Any) -> Callable[[Tensor, Tensor], Tensor] | None:
    """The function of torch for a bitwise ReduceOp, None for another operator."""
    function = BITWISE.get(hash(op))
    if function and (tensor.is_floating_point() or tensor.is_complex()):
        raise NotImplementedError(f"lightpath: no {op} of {tensor.dtype}")
    return function


def premultiplied(op: Any, *tensors: Tensor) -> tuple[Any, Sequence[Tensor]]:
    """op and tensors without a premultiplied sum: SUM, and copies of the tensors times its factor."""
    if hash(op) != PREMULTIPLIED:
        return op, tensors
    state = op.__getstate__()
    if state is None:
        raise NotImplementedError(
            f"lightpath: torch {torch.__version__} does not tell the factor of {op}; torch 2 does"
        )
    return ReduceOp.SUM, [tensor.detach() * state[1] for tensor in tensors]


def reduction(tensor: Tensor, op: Any) -> tuple[int, int]:
    """ncclDataType_t and ncclRedOp_t of a reduction of tensor by a torch ReduceOp."""
    found = REDUCTIONS.get((hash(op), tensor.dtype))
    if found is None:
        raise NotImplementedError(f"lightpath: no {op} of {tensor.dtype}")
    return found


def copied(tensor: Tensor) -> tuple[int, int]:
    """Count and ncclDataType_t under which tensor's elements are moved as they are."""
    dtype = TYPES.get(tensor.dtype)
    if dtype is None:
        return tensor.numel() * tensor.element_size(), BYTES
    return tensor.numel(), dtype


def check(*tensors: Tensor) -> None:
    """All on the CPU, strided, and of one type."""
    for tensor in tensors:
        if not tensor.is_cpu or tensor.layout is not torch.strided:
            raise ValueError(
                f"lightpath: tensors must be strided and on the CPU, not {tensor.layout} on {tensor.device}"
            )
        if tensor.dtype != tensors[0].dtype:
            raise ValueError(f"lightpath: tensors of one call have one type, not {tensors[0].dtype} and {tensor.dtype}")


def usable(tensor: Tensor) -> bool:
    """Whether the library can run over the tensor's memory: it holds all values in order. Memory of a lazy conjugate or
    negative holds other values."""
    return tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg()


class Source:
    """Memory that holds tensors one after the other. It copies them only if they do not lie so already."""

    direct = True  # there is nothing to deliver

    def __init__(self, *tensors: Tensor) -> None:
        check(*tensors)
        if len(tensors) > 1:
            self.memory = torch.cat([t.detach().reshape(-1) for t in tensors])
        elif usable(tensors[0]):
            self.memory = tensors[0]
        else:
            self.memory = tensors[0].detach().contiguous().resolve_conj().resolve_neg()
        self.pointer = self.memory.data_ptr()


class Target:
    """Memory for results of tensors, one after the other. If it is not direct, deliver copies them into the tensors."""

    def __init__(self, *tensors: Tensor, keep: bool = False) -> None:
        """If keep is set, the memory begins with the tensors' contents."""
        check(*tensors)
        self.tensors = tensors
        self.direct = len(tensors) == 1 and usable(tensors[0])
        if self.direct:
            self.memory = tensors[0]
        elif keep:
            self.memory = torch.cat([t.detach().reshape(-1) for t in tensors])
        else:
            self.memory = tensors[0].new_empty(sum(t.numel() for t in tensors))
        self.pointer = self.memory.data_ptr()

    def deliver(self) -> None:
        parts = self.memory.split([t.numel() for t in self.tensors])
        for tensor, part in zip(self.tensors, parts):
            tensor.detach().copy_(part.view(tensor.shape))


class Combined(Target):
    """Memory for one tensor of each rank; deliver combines them into the tensor with function."""

    def __init__(self, tensor: Tensor, ranks: int, function: Callable[[Tensor, Tensor], Tensor]) -> None:
        check(tensor)
        self.tensors, self.direct = (tensor,), False
        self.memory = tensor.new_empty((ranks, tensor.numel()))
        self.pointer = self.memory.data_ptr()
        self._function = function

    def deliver(self) -> None:
        (tensor,) = self.tensors
        tensor.detach().copy_(functools.reduce(self._function, self.memory.unbind()).view(tensor.shape))


class SparseSum:
    """The sum of one sparse tensor of each rank. The ranks first gather their facts: how much each one sends, then."""

    direct = False

    def __init__(self, tensor: Tensor, ranks: int) -> None:
        self._tensor, own = tensor, tensor.detach().coalesce()
        self._indices, self._values = own.indices(), own.values()
        self._parts: tuple[list[Tensor], list[Tensor]] = ([], [])
        self.fact = torch.tensor([own._nnz(), own.sparse_dim(), *own.shape], device="cpu")
        self.facts = Target(self.fact.new_empty((ranks, len(self.fact))))

    def parts(self) -> Iterable[tuple[list[Tensor], Tensor]]:
        """Twice one tensor of each rank, and this rank's tensor: indices, then values."""
        counts, *forms = self.facts.memory.T.tolist()
        if any(len(set(form)) > 1 for form in forms):
            raise ValueError(f"lightpath: sparse tensors of ranks differ in dimensions or shape: {list(zip(*forms))}")
        self._parts = (
            [self._indices.new_empty((len(self._indices), count)) for count in counts],
            [self._values.new_empty((count, *self._values.shape[1:])) for count in counts],
        )
        return zip(self._parts, (self._indices, self._values))

    def deliver(self) -> None:
        indices, values = self._parts
        total = torch.sparse_coo_tensor(torch.cat(indices, 1), torch.cat(values), self._tensor.shape)
        with torch.no_grad():  # a detached sparse tensor has indices of its own
            self._tensor.copy_(total.coalesce())
