"""The memory traffic of a collective between ranks that share a device (docs/performance.md has it for hosts)."""


def moved(collective, ranks, size):
    """Bytes that must be read and written for size bytes, by nccl-tests' meaning of size, whatever the algorithm: every
    input once, every result once. One rank copies."""
    read, written = {
        "allreduce": (ranks, ranks),
        "alltoall": (ranks, ranks),
        "sendrecv": (ranks, ranks),
        "reducescatter": (ranks, 1),
        "reduce": (ranks, 1),
        "allgather": (1, ranks),
        "broadcast": (1, max(ranks - 1, 1)),
        "gather": (1, 1),
        "scatter": (1, 1),
    }[collective]
    return (read + written) * size


def busbw_factor(collective, ranks):
    """busbw over algbw, by nccl-tests' definition."""
    if collective == "allreduce":
        return 2 * (ranks - 1) / ranks
    if collective in ("allgather", "reducescatter", "alltoall", "gather", "scatter"):
        return (ranks - 1) / ranks
    return 1


def busbw_limit(collective, ranks, copy_gbs):
    """The greatest busbw, in GB/s, on memory that a plain copy reads and writes at copy_gbs in total."""
    return copy_gbs / moved(collective, ranks, 1) * busbw_factor(collective, ranks)
