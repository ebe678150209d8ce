package netconf

import (
	"strconv"
	"time"

	"lightpath/ocsctl/driver/netconf/wire"
)

// The datastores that this driver uses.
const (
	running   = "running"
	candidate = "candidate"
)

func base(local string, children ...*wire.Element) *wire.Element {
	return wire.New(wire.BaseNS, local, children...)
}

func optical(local string, children ...*wire.Element) *wire.Element {
	return wire.New(wire.OpticalNS, local, children...)
}

// get returns a request for configuration and state below containers of the module.
func get(containers ...*wire.Element) *wire.Element {
	filter := base("filter", containers...)
	filter.SetAttr("type", "subtree")
	return base("get", filter)
}

// getMap returns a request for the map in force.
func getMap() *wire.Element { return get(optical("cross-connects")) }

func lock(store string) *wire.Element   { return base("lock", base("target", base(store))) }
func unlock(store string) *wire.Element { return base("unlock", base("target", base(store))) }

// edit returns a request that changes a datastore as a whole or not at all, if the switch can do that. If the switch
// can validate, it validates as a part of the edit: after a separate validate, netconfd 2.13 takes the next commit for
// one without changes.
func edit(store string, peer wire.Hello, config *wire.Element) *wire.Element {
	e := base("edit-config", base("target", base(store)))
	if peer.Has(wire.CapValidate) {
		e.Children = append(e.Children, wire.Leaf(wire.BaseNS, "test-option", "test-then-set"))
	}
	if peer.Has(wire.CapRollback) {
		e.Children = append(e.Children, wire.Leaf(wire.BaseNS, "error-option", "rollback-on-error"))
	}
	e.Children = append(e.Children, base("config", config))
	return e
}

// commitConfirmed returns a request to commit the candidate until the timeout, unless a session confirms id.
func commitConfirmed(id string, timeout time.Duration) *wire.Element {
	seconds := max(1, int(timeout.Round(time.Second)/time.Second))
	return base("commit", base("confirmed"),
		wire.Leaf(wire.BaseNS, "confirm-timeout", strconv.Itoa(seconds)), wire.Leaf(wire.BaseNS, "persist", id))
}

func confirm(id string) *wire.Element {
	return base("commit", wire.Leaf(wire.BaseNS, "persist-id", id))
}

func cancelCommit(id string) *wire.Element {
	return base("cancel-commit", wire.Leaf(wire.BaseNS, "persist-id", id))
}
