// Package netconf serves a device model over NETCONF (RFC 6241) in SSH (RFC 6242), with the
// YANG module optical-switch as Polatis switches have it: /cross-connects, /port-config,
// /opm-power, /opm-config and /product-information.
//
// The table of the device is the running datastore, so changes by other protocols show here at once. A row is keyed by
// its ingress; the schema cannot forbid that two rows share an egress, the device does. The module has no word for a
// mirror on its way: such a port is DISABLED, as no light passes; what real firmware says meanwhile is not known.
//
// Layer: above device; it shares the wire package with the driver, and nothing else.
package netconf
