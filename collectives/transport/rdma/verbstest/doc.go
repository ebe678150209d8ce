// Package verbstest implements [rdma.Verbs] in memory, for tests only. A worker goroutine carries requests between
// queue pairs in random order, acknowledges them late and injects the faults that a test requests.
//
// It also checks properties that real devices do not report: queues do not overflow, memory does not change before a
// request is complete, and every access has a valid key and valid bounds. After set-up no call allocates.
package verbstest
