// Package counts exchanges cumulative counts between ranks over UDP, on the control network. The transports ebpf and
// rdma use it for credits, because a circuit leads one way and offers no path back to the sender.
//
// The package does not interpret the counts. It imports no other package of Lightpath, holds no locks and starts no
// goroutines.
package counts
