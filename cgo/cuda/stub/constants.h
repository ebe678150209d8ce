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
