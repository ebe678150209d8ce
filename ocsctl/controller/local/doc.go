// Package local connects the ranks of one host to the controller: a Unix socket carries rare messages,
// shared memory carries the others. Posts go through a ring per port and plane. Every rank reads the
// states of planes from a page. Bells wake sleeping ends. While both ends poll, no system call lies
// between the last post and the moment at which the ranks continue.
//
// [Serve] is the controller's end, [Dial] a rank's. A data path that has memory of its own with
// every rank passes it on with the welcome; see [Rings].
//
// Layer: ocsctl, above controller and shmring. It carries requests and decides nothing; the
// protocol is in PROTOCOL.md.
package local
