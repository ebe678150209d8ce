// Package topology finds the hardware of a machine for planes: NUMA nodes, network interfaces, RDMA devices and GPUs.
// It finds their distances in the PCIe tree, and the ones that the planes of a fabric file name.
//
// Layer: shim, beside the communicators. It reads sysfs through an [io/fs.FS], so a test can use a tree of its own.
// Functions of its caller supply facts that sysfs lacks: GPUs by NVML, character devices and IPoIB interfaces by
// netlink. It must not import those libraries itself. NVML's binding leaves hundreds of symbols to lazy binding, and a
// library that other programs load must not.
package topology
