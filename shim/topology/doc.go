// Package topology finds what a machine offers to planes: NUMA nodes, network interfaces, RDMA
// devices and GPUs, how far the PCIe tree keeps them apart, and which of them the planes of a
// fabric file mean.
//
// Layer: shim, beside the communicators. It reads sysfs through an [io/fs.FS], so a test's tree
// is as good as a machine's, and takes what sysfs does not tell (GPUs by NVML, character devices
// and IPoIB interfaces by netlink) from functions of its caller. It must not import those
// libraries itself: NVML's binding leaves hundreds of symbols to lazy binding, which a library
// that is loaded into other programs cannot afford.
package topology
