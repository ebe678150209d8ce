// Package transport defines the data path that package exec drives: an [Endpoint] per rank with one [Plane] per
// plane.
//
// The subpackages implement it. On the packet planes of inproc, shm, tcp, rdma and netplugin, every rank reaches
// every other rank. The planes of port (emulated OCS) and ebpf (network interfaces) have circuits that the OCS
// switches. Package messages is apart from it: it defines the data path of device memory.
//
// An Endpoint and its Planes belong to one goroutine at a time, which drives the communicator. Only Wake and Close
// are safe for concurrent use. Only Wait and Close block. After set-up no call allocates.
//
// The package imports wire and nothing else of Lightpath. Transports must not know programs, schedules or tickets:
// they move the frames of flows and never interpret a payload.
package transport
