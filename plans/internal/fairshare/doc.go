// Package fairshare shares the capacity of links among groups of flows, max-min fairly, and
// keeps the shares while groups come and go.
//
// Layer: inside plans. It knows links by number and no topology, time or bytes.
//
// The flows of a group move in lockstep, as those of one step of a collective do: all have
// the group's rate, so the slowest link of any of them is everyone's. A link gives all flows on
// it the same, unless they are held back elsewhere; what those leave is shared by the others.
// In numbers: group j has w(j,l) flows on link l, and the rates x are the max-min fair ones
// under sum over j of w(j,l) x(j) <= capacity(l) and x(j) <= limit(j).
//
// The algorithm is progressive filling (Bertsekas and Gallager, Data Networks, 6.5.2), done
// only for what a change can reach: the groups connected with it through links that more than
// one group uses.
package fairshare
