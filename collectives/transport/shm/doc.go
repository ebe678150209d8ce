// Package shm is the packet transport between processes of one host. It holds the rings and doorbells of a
// communicator in one segment of shared memory, and memory that ranks use without frames ([transport.Sharer]).
//
// The segment is a file in a memory file system. Rank 0 creates it under a random name with access for its user only.
// It allocates all the memory at once: a full file system then is an error of Create, and not a SIGBUS later. The last
// rank that attaches removes the name. The kernel frees the memory when the last rank closes.
//
// The creator locks the file until it closes its endpoint. If ranks crash before all have attached, the next Create
// of any process finds the unlocked file and removes it.
//
// The package imports transport and internal/mesh. Ranks must communicate through the segment only; the bootstrap
// passes its name to them.
package shm
