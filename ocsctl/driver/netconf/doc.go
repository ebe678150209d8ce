// Package netconf drives optical circuit switches that offer the YANG module optical-switch
// over NETCONF (RFC 6241) in SSH (RFC 6242), as Polatis switches do.
//
// A change is one edit under the switch's lock: the map is read, compared with the one the
// change starts from, edited in one edit-config (deletes, then moves, then makes; what both
// maps have is not named) and read back. Where the switch has a candidate, the edit is
// validated there and committed; where it can, the commit is a confirmed one, so that a
// controller which dies before it has seen the result leaves the switch to undo it. (Not all
// keep that promise: netconfd 2.13 cannot restore what is locked.) An answer that does not
// come costs the session: a new one takes the lock, which nobody gets while the old request
// may still act, and reads what has become of it.
//
// Layer: below the controller; it imports driver and plans/circuit. It knows no epochs and
// keeps no map.
package netconf
