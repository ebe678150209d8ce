# Rings that are not in place, for collectives of which msccl-tools has no such example.
import sys

from msccl.language import *
from msccl.topologies import *
from msccl.language.collectives import AllGather, AllReduce, ReduceScatter

what, size, instances = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
inplace = what.endswith("inplace")


def around(index):
    """Reduces chunk index of every rank's input along the ring, onto rank index, over scratch."""
    c = chunk((index + 1) % size, Buffer.input, index)
    for step in range(2, size + 1):
        rank = (index + step) % size
        if inplace:
            c = chunk(rank, Buffer.input, index).reduce(c)
        else:
            own = chunk(rank, Buffer.input, index).copy(rank, "sum", index)
            c = own.reduce(c)
    return c


collective = {
    "rs": ReduceScatter(size, 1, inplace),
    "rs-inplace": ReduceScatter(size, 1, inplace),
    "ag": AllGather(size, 1, inplace),
    "ar": AllReduce(size, size, inplace),
}[what]
with MSCCLProgram(what + "_ring", fully_connected(size), collective, instances):
    for index in range(size):
        if what == "ag":
            c = chunk(index, Buffer.input, 0).copy(index, Buffer.output, index)
        else:
            c = around(index)
            if not inplace:
                c = c.copy(index, Buffer.output, 0 if what == "rs" else index)
        if what in ("ag", "ar"):
            for step in range(1, size):
                c = c.copy((index + step) % size, Buffer.output, index)
    XML()
    Check()
