// Package etcd keeps the journal of a controller in etcd: in a cluster on other hosts, or in a server within one of the
// controllers of this host.
//
// The controller that rules holds a lease and the leader key. The key's create revision is the fencing token. Every
// write is a transaction that fails once that key has changed, so a controller that was replaced cannot write. It also
// stops by its own clock, some time before its lease can expire on the server.
//
// Layer: ocsctl, below package lead. It must not be linked into the library that ranks load.
package etcd
