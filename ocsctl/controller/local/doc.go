// Package local brings the ranks of one host to the controller: a Unix socket for what is rare,
// and shared memory for what is not. Posts go through a ring per port and plane, states through a
// page that every rank reads, and bells wake who sleeps, so that nothing between the last post and
// the ranks' going on makes a system call while both ends look.
//
// [Serve] is the controller's end, [Dial] a rank's. A data path that has memory of its own with
// every rank passes it on with the welcome; see [Rings].
//
// Layer: ocsctl, above controller and shmring. It carries requests and decides nothing; the
// protocol is in PROTOCOL.md.
package local
