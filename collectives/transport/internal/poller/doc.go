// Package poller lets the endpoints over sockets find ready descriptors and wait for them, with an epoll set and an
// eventfd that wakes the waiting goroutine.
//
// It imports no other package of Lightpath. It does not read, write or close the descriptors of its caller.
package poller
