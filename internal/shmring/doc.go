// Package shmring provides shared-memory primitives: a single-producer single-consumer [Ring] of slots, a futex
// [Doorbell], and mappings ([Memory], [Bell]) that one process passes to another.
//
// Rings and doorbells live in memory of the caller, which may be a mapping shared between processes or the heap. They
// keep no pointers in that memory. The package imports no other package of Lightpath, because the emulated OCS,
// the controller and the shared-memory transports all use it.
package shmring
