package dialect

import "time"

var names = []string{"ocp", "sonic-db", "oc-optical-switch"}

// chassis is the identity of a switch in OpenConfig's platform model.
var chassis = Table{
	Entry: []Step{{Name: "components"}, {Name: "component", Keys: []Key{{Name: "name", Value: "chassis"}}}},
	Fields: []Field{
		{Path: "state/mfg-name", Bind: "vendor"}, {Path: "state/part-no", Bind: "model"},
		{Path: "state/serial-no", Bind: "serial"}, {Path: "state/software-version", Bind: "software"},
	},
	Read: 2, Module: "openconfig-platform",
}

var portWords = map[State]string{Blocked: "BLOCKED", Pending: "TUNING", Up: "TUNED", Failed: "FAILED"}

var sonicWords = map[State]string{Blocked: "blocked", Pending: "tuning", Up: "tuned", Failed: "failed"}

// dialects are drafts in public use: the OCP's optical-switch models (0.8.0), SONiC's databases
// as its OCS design has them, and the optical-switch model once proposed to OpenConfig. Of the
// last, the leaves of port-status beside slot and port are not public; those here are a guess.
var dialects = [...]Dialect{
	{
		Name:   "ocp",
		Models: []string{"ocp-ocs-optical-switch-connections", "ocp-ocs-optical-switch"},
		Config: Table{
			Entry: []Step{{Name: "connections"}, {Name: "port-connection", Keys: []Key{{Name: "name", Bind: "id"}}}},
			Fields: []Field{
				{Path: "config/name", Bind: "id"},
				{Path: "config/input-port-name", Bind: "in"}, {Path: "config/output-port-name", Bind: "out"},
			},
			Read: 1, Module: "ocp-ocs-optical-switch-connections",
		},
		Status: Table{
			Entry: []Step{{Name: "connections"}, {Name: "port-connection", Keys: []Key{{Name: "name", Bind: "id"}}}},
			Fields: []Field{
				{Path: "state/name", Bind: "id"},
				{Path: "state/input-port-name", Bind: "in"}, {Path: "state/output-port-name", Bind: "out"},
				{Path: "state/status", Bind: "status"}, {Path: "state/status-reason", Bind: "reason"},
			},
			Read: 1, Module: "ocp-ocs-optical-switch-connections",
			Words: map[State]string{Up: "CONNECTED", Pending: "PENDING_CONNECTION", Leaving: "PENDING_DELETION",
				Failed: "FAILED", Invalid: "INVALID"},
		},
		Ports: Table{
			Entry: []Step{{Name: "components"}, {Name: "component", Keys: []Key{{Name: "name", Bind: "port"}}},
				{Name: "ocp-ocs-port"}},
			Fields: []Field{
				{Path: "state/status", Bind: "status"}, {Path: "state/connection/peer", Bind: "peer"},
				{Path: "state/input-optical-power", Bind: "input", Number: true},
				{Path: "state/output-optical-power", Bind: "output", Number: true},
			},
			Read: 3, Module: "openconfig-platform", Words: portWords,
		},
		System: chassis,
		Power:  true, Roles: true,
	},
	{
		// SONiC's server refuses requests across databases and masters with roles, and has a Set
		// validated as a patch, which takes seconds.
		Name: "sonic-db", Origin: "sonic-db", OneRoot: true, SetTime: 15 * time.Second,
		Models: []string{"sonic-ocs", "sonic-db"},
		Config: Table{
			Entry:  []Step{{Name: "CONFIG_DB"}, {Name: "localhost"}, {Name: "OCS_CROSS_CONNECT"}, {Bind: "id"}},
			Fields: []Field{{Path: "a_side", Bind: "in"}, {Path: "b_side", Bind: "out"}},
			Read:   3,
		},
		Status: Table{
			Entry:  []Step{{Name: "STATE_DB"}, {Name: "localhost"}, {Name: "OCS_CROSS_CONNECT"}, {Bind: "id"}},
			Fields: []Field{{Path: "a_side_status", Bind: "in.status"}, {Path: "b_side_status", Bind: "out.status"}},
			Read:   3, Words: sonicWords,
		},
		Ports: Table{
			Entry:  []Step{{Name: "STATE_DB"}, {Name: "localhost"}, {Name: "OCS_PORT"}, {Bind: "port"}},
			Fields: []Field{{Path: "status", Bind: "status"}, {Path: "target_simplex_port_id", Bind: "peer"}},
			Read:   3, Words: sonicWords,
		},
		System: Table{
			Entry:  []Step{{Name: "CONFIG_DB"}, {Name: "localhost"}, {Name: "DEVICE_METADATA"}, {Name: "localhost"}},
			Fields: []Field{{Path: "platform", Bind: "vendor"}, {Path: "hwsku", Bind: "model"}},
			Read:   4,
		},
	},
	{
		Name:   "oc-optical-switch",
		Models: []string{"openconfig-optical-switch"},
		Config: Table{
			Entry: []Step{{Name: "optical-switch"}, {Name: "port-connections"}, {Name: "port-connection", Keys: []Key{
				{Name: "port", Bind: "in.port", Number: true}, {Name: "slot", Bind: "in.slot", Number: true},
			}}},
			Fields: []Field{
				{Path: "config/slot", Bind: "in.slot", Number: true}, {Path: "config/port", Bind: "in.port", Number: true},
				{Path: "config/peer-slot", Bind: "out.slot", Number: true},
				{Path: "config/peer-port", Bind: "out.port", Number: true},
			},
			Read: 2, Module: "openconfig-optical-switch",
		},
		Ports: Table{
			Entry: []Step{{Name: "optical-switch"}, {Name: "port-statuses"}, {Name: "port-status", Keys: []Key{
				{Name: "port", Bind: "port.port", Number: true}, {Name: "slot", Bind: "port.slot", Number: true},
			}}},
			Fields: []Field{
				{Path: "state/status", Bind: "status"},
				{Path: "state/peer-slot", Bind: "peer.slot", Number: true},
				{Path: "state/peer-port", Bind: "peer.port", Number: true},
				{Path: "state/input-power", Bind: "input", Number: true},
				{Path: "state/output-power", Bind: "output", Number: true},
			},
			Read: 2, Module: "openconfig-optical-switch", Words: portWords,
		},
		System:  chassis,
		Slotted: true, Power: true, Roles: true,
	},
}
