// Package file keeps the journal of a controller in one file of its host: a bbolt database, which commits with fsync.
// It survives kills, power cuts and restarts, and needs no server.
//
// The controller that has the file open rules. The kernel holds a lock on the file and releases it when the process
// ends. Until then, a second controller on the same host and directory stands by. A controller that hangs keeps the
// lock: package etcd allows a takeover from it, and controllers on several hosts.
//
// Layer: ocsctl, below package lead. It must not be linked into the library that ranks load.
package file
