# AllReduce by a binomial tree and its mirror image, one chunk each (examples/mscclang/
# allreduce_binomial_tree.py of msccl-tools, which its current language no longer runs).
import sys

from msccl.language import *
from msccl.topologies import *
from msccl.language.collectives import AllReduce


def tree(size, index, place):
    distance = 1
    while distance <= size // 2:
        for v in range(0, size, 2 * distance):
            chunk(place(v), Buffer.input, index).reduce(chunk(place(v + distance), Buffer.input, index))
        distance *= 2
    while distance > 1:
        distance //= 2
        for v in range(0, size, 2 * distance):
            chunk(place(v), Buffer.input, index).copy(place(v + distance), Buffer.input, index)


size, trees, instances = map(int, sys.argv[1:])
with MSCCLProgram("allreduce_binomial_tree", fully_connected(size), AllReduce(size, trees, True), instances):
    tree(size, 0, lambda v: v)
    if trees == 2:
        tree(size, 1, lambda v: size - 1 - v)
    XML()
    Check()
