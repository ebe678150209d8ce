// Package comm has what every path needs of a communicator: who its ranks are, the control network between them, its
// first failure, its life, and the lock that orders its calls.
//
// Layer: above bootstrap, control and settings, below calls and all paths. It knows no path: a room keeps its state of
// a communicator in a [Slot], handles control messages that it has registered, and gives its share back in [Hooks].
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
// A failure ("poison") is apart from the state. It may come in every state and is never taken back.
package comm
