// Package scpi drives Polatis switches over SCPI: one TCP session with one line in flight. A change is SUB and ADD of
// the difference, or ONLY if the whole map changes. Then the driver asks for the end of the motion (*OPC?), the states
// of the ports, and the power meters.
//
// SCPI has no authentication, encryption or fencing: connections to other hosts must be allowed explicitly.
//
// Layer: below ocsctl/driver/registry, above ocsctl/driver.
package scpi
