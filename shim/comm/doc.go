// Package comm has the parts of a communicator that every path needs: its ranks, the control network between them, its
// first failure, its life, and the lock that orders its calls.
//
// Layer: above bootstrap, control and settings, below calls and all paths. It knows no path. A room keeps its state of
// a communicator in a [Slot]. It registers handlers for control messages, and frees its state in [Hooks].
//
//	          ranks have met              Suspend
//	making ------------------> alive <---------------> suspended
//	  |                          |         Resume
//	  | failed: Destroy, Abort   | Finalize
//	  |                          v
//	  |                      finalized
//	  |                          |
//	  +----> destroyed <---------+   Destroy and Abort: from every state
//
// A failure ("poison") is separate from the state. It may happen in every state and is never reset.
package comm
