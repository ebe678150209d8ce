// Package netconf drives optical circuit switches that offer the YANG module optical-switch
// over NETCONF (RFC 6241) in SSH (RFC 6242), as Polatis switches do.
//
// A change is one edit under the switch's lock. The driver reads the map, compares it with the map that the change
// starts from, and edits it in one edit-config: deletes, then moves, then makes; circuits that both maps have are not
// named. Then it reads the map back. Where the switch has a candidate, the driver validates and commits the edit there.
// Where the switch offers it, the commit is a confirmed one: the switch undoes it if the controller dies before it has
// seen the result. (Not all keep that promise: netconfd 2.13 cannot restore a locked datastore.) If an answer does not
// come, the driver ends the session. The next session takes the lock, which the switch refuses while the old request
// may still act, and reads the outcome.
//
// Layer: below the controller; it imports driver and plans/circuit. It knows no epochs and
// keeps no map.
package netconf
