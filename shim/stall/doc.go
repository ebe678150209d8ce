// Package stall finds out why operations do not move. Each [comm.Core.StallInterval], a stalled rank tells the leader
// which call it is in. The leader compares the calls of all ranks, asks the ranks that are past the operation for their
// calls, and fails the communicator with the reason: ranks made different calls, or a rank never came.
//
// Layer: above calls and recorder, below session, circuits and the paths. It knows calls by number and signature only.
package stall
