// Package fairshare divides the capacity of links among groups of flows, max-min fairly, and updates the shares when
// groups are added or removed.
//
// Layer: inside plans. It knows links by number and no topology, time or bytes.
//
// All flows of a group have the same rate, as those of one step of a collective, so the slowest link limits the whole
// group. Group j has w(j,l) flows on link l. The rates x are max-min fair under: sum over j of w(j,l) x(j) <=
// capacity(l), and x(j) <= limit(j).
//
// The algorithm is progressive filling (Bertsekas and Gallager, Data Networks, 6.5.2), only for the groups that a
// change can affect: those connected with it through links that several groups use.
package fairshare
