// Package gnmi serves a device model in one of the gNMI dialects of optical switches: Capabilities,
// Get, Set with arbitration between masters, and Subscribe. The dialect is a table; the server knows
// no paths.
//
// Layer: above ocsctl/device. Besides it, the server keeps only state that hardware lacks: the names of circuits, and
// accepted circuits that are invalid.
package gnmi
