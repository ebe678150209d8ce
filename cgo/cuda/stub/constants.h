/* What things cost on the modelled device, an H200 SXM: the only table (docs/design/gpu-model.md). make gpu-check
 * measures the same rows on a device (bench/gpu/model.py). Times are in ns, bandwidths in GB/s.
 *
 *   CONSTANT(name, value, unit, what, source) */
#ifndef CONSTANT
#error "define CONSTANT"
#endif

CONSTANT(memory, 4300, "GB/s", "device memory, read and written together", "90 % of the data sheet's 4.8 TB/s")
CONSTANT(processors, 132, "", "multiprocessors; one moves its share of the bandwidth", "data sheet")
CONSTANT(block, 4096, "B", "bytes that a block of threads moves at a time", "cgo/cuda/kernels: 256 threads of 16 bytes")
CONSTANT(interconnect, 450, "GB/s", "memory of other devices, each direction", "data sheet: NVLink, 900 GB/s both ways")
CONSTANT(pcie, 50, "GB/s", "memory of the host, each direction", "PCIe 5.0 x16: 63 GB/s less headers")
CONSTANT(launch, 4000, "ns", "kernel or copy on a stream, without its bytes", "assumed")
CONSTANT(graph_node, 1500, "ns", "kernel or copy of a graph, without its bytes", "assumed")
CONSTANT(graph, 4000, "ns", "launch of a graph, without its nodes", "assumed")
CONSTANT(memory_operation, 700, "ns", "wait for a word or write of one; record of an event or wait for one", "assumed")
CONSTANT(poll, 1000, "ns", "wait for a word in memory of the host, besides", "a read over PCIe: about 1 us")
CONSTANT(host_function, 6000, "ns", "host function on a stream", "assumed")
CONSTANT(enqueue, 2000, "ns", "CPU: launch of a kernel, copy, batch of words, host function or graph", "assumed")
CONSTANT(call, 300, "ns", "CPU: any other call of the driver", "assumed")
/* Costs of making a communicator. The CPU's time for a call comes on top. */
CONSTANT(context, 200000000, "ns", "CPU: the first context of a process on a device", "assumed")
CONSTANT(module, 44000, "ns", "CPU: load of a module of machine code", "TornadoVM#1000: 256 loads in 11.3 ms")
CONSTANT(module_kib, 500, "ns", "CPU: each KiB of machine code", "assumed: 2 GB/s")
CONSTANT(jit_kib, 1500000, "ns", "CPU: each KiB of text that the driver compiles", "ptxas 12.8: 1088 KiB in 1.6 s")
CONSTANT(function, 20000, "ns", "CPU: first launch of a function, which loads it", "assumed")
CONSTANT(allocation, 50000, "ns", "CPU: memory of the device, or page-locked", "bpftime#506: cudaMalloc 47 us")
CONSTANT(import, 200000, "ns", "CPU: memory of another process", "bpftime#506: cuIpcOpenMemHandle 197 us")
CONSTANT(stream, 50000, "ns", "CPU: creation of a stream", "assumed")
