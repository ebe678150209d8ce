// Package optical runs calls on host memory over planes with circuits: each collective, and each group of sends and
// receives, under a ticket of the leader.
//
// Layer: a path, above session, circuits and arbiter/live. It decides nothing that only the leader may decide.
package optical
