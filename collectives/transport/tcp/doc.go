// Package tcp is the packet transport over TCP: every pair of ranks has one connection per plane, and the goroutine
// that drives the rank calls non-blocking system calls.
//
// A connection carries frames back to back. The kernel sends payload directly from the caller's memory. It receives
// payload directly into the caller's memory after the header has been checked. Payload to be reduced is received into
// a buffer per connection that fits the cache.
//
// Package net sets up the connections. After that, the package owns the sockets. With heartbeats, goroutines of the
// endpoint watch the connections, and replace one that breaks by a connection on another plane (see [Failover]).
//
// The package imports transport, wire and internal/poller.
package tcp
