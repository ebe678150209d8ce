package netconf

import (
	"strconv"
	"time"

	"lightpath/ocsctl/driver/netconf/wire"
)

// The names of the datastores that this driver uses.
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

// get asks for configuration and state below the given containers of the module.
func get(containers ...*wire.Element) *wire.Element {
	filter := base("filter", containers...)
	filter.SetAttr("type", "subtree")
	return base("get", filter)
}

// getMap asks for the map that is in force.
func getMap() *wire.Element { return get(optical("cross-connects")) }

func lock(store string) *wire.Element   { return base("lock", base("target", base(store))) }
func unlock(store string) *wire.Element { return base("unlock", base("target", base(store))) }

// edit changes a datastore, whole or not at all where the switch can do that. Where it can
// validate, it does so first: as a part of the edit, since a validate of its own makes
// netconfd 2.13 take the next commit for one without changes.
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

// commitConfirmed makes the candidate run until the timeout, unless a session confirms id.
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
