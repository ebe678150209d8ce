// Package slots keeps links in numbered slots and changes them with few moves. A node has, for
// each of q numbers, one slot for a link that leaves it and one for a link that enters it; a
// link takes slot c of both its ends. Leaves with their spines are such nodes, and so are
// pods with the pairs of OCSes of a group.
//
// A pair of nodes is joined by links of either direction alike, so up to 2q links of a node always
// fit: q at each side by an Eulerian orientation, and q colours suffice for those (Konig). What
// the package adds is that hardly anything moves: see [Table.Reach].
//
// Layer: part of plans/lumos. It knows nodes and slots, neither leaves nor pods.
package slots
