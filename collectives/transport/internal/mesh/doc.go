// Package mesh is the data path of the transports inproc and shm: a ring for every plane and ordered pair of ranks,
// and a doorbell per rank, in memory of the caller.
//
// It imports wire, transport, sleep and internal/shmring. It must not allocate, map or free the memory.
package mesh
