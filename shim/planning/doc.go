// Package planning makes the plans of a communicator. It states problems. It keeps families of calls that differ in
// size only, the cache of plans, and the leader's book of plans by shape and by demand matrix.
//
// Layer: above dispatch, below ticket and arbiter. It knows shapes and planes, no ranks' messages and no tickets.
// Planning in the background never decides for ranks: the leader announces what is in the book.
package planning
