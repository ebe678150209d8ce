// Package slots keeps links in numbered slots and changes them with few moves. A node has, for each of q
// numbers, one slot for an outgoing link and one for an incoming link. A link takes slot c of both its ends.
// A leaf with its spines is such a node, and so is a pod with the pairs of OCSes of a group.
//
// A link joins a pair of nodes in either direction, so up to 2q links of a node always fit. An Eulerian
// orientation gives q on each side, and q colours suffice for those (Konig). [Table.Reach] changes links with
// few moves.
//
// Layer: part of plans/lumos. It knows nodes and slots, neither leaves nor pods.
package slots
