// Package rpc brings the controller of optical circuit switches to ranks and operators on other
// hosts, by gRPC. [Serve] is the controller's end, [Dial] a rank's: an ocsctl.Client that survives
// its controller, and [DialOperator] an operator's.
//
// A rank's stream carries state, not a queue. Each end keeps the state that the other does not have yet: the newest
// map of each plane and epoch of the rank's port there, and unanswered posts and requests. It sends all of it in one
// message. So a slow reader costs no memory, and a broken stream continues where it was.
//
//	rank                         session (server)                core
//	Post ------- stream ------->  Attachment.Post ------------->  barrier
//	Poll <- atomics <- stream <-  mailbox, one writer <- Sink <-  Changed
//
// Off loopback both ends prove their identity with certificates of one authority. Without
// certificates, every process that reaches the port on this host may attach and operate.
//
// Layer: ocsctl/controller. It decides nothing about planes: that is the core's.
package rpc

import "time"

// ProtocolVersion is that of the messages; both ends must have the same.
const ProtocolVersion = 7

// Bounds of what either end accepts. They are far above what honest ends need.
const (
	maxUp       = 64 << 10 // bytes of a message of a rank or an operator: a map of controller.MaxPorts, and more
	maxDown     = 4 << 20  // bytes of a message of the controller: maps of controller.MaxPlanes
	maxAcquires = 64       // requests of a session that wait
	maxAhead    = 64       // posts of one plane that wait
	maxText     = 1024     // bytes of a text that a peer sends
	maxRefusals = 64       // refused posts of a session that a new stream is told of
)

// window is the flow control of a stream. It is set because gRPC pings the other end after
// messages for as long as it looks for one itself: a third of the frames of a barrier.
const window = 256 << 10

// Times. Hosts that die without a word are noticed by pings and heartbeats.
const (
	defaultPatience  = 5 * time.Second
	requestTimeout   = 5 * time.Second // answers to questions, and goodbyes
	idleTimeout      = 30 * time.Second
	pingAfter        = 5 * time.Second
	pingTimeout      = 10 * time.Second
	defaultStall     = 10 * time.Second
	heartbeat        = time.Second // at least so often the controller sends something
	defaultSilence   = 6 * time.Second
	defaultLinger    = 500 * time.Millisecond
	defaultTakeover  = 30 * time.Second
	attemptTimeout   = 5 * time.Second // one endpoint
	firstBackoff     = 5 * time.Millisecond
	maxBackoff       = 500 * time.Millisecond // between rounds of all endpoints
	maxRetry         = 50 * time.Millisecond  // between streams that break at once
	maxHistoryEvents = 10000
)
