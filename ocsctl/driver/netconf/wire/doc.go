// Package wire is shared by both ends of a NETCONF session. It has the framing of RFC 6242, the messages of RFC 6241 as
// a small tree of XML elements, and the names of the YANG module optical-switch. It bounds a message in bytes, depth
// and elements before it parses it.
//
// Layer: below driver/netconf and device/netconf. It opens no connection and knows neither
// maps of ranks nor switches.
package wire

import "errors"

// ErrMalformed reports bytes that are not NETCONF, or a message that is too large.
var ErrMalformed = errors.New("malformed NETCONF")

// Namespaces and capabilities (RFC 6241, sections 3.1, 8 and 10.4).
const (
	BaseNS        = "urn:ietf:params:xml:ns:netconf:base:1.0"
	Base10        = "urn:ietf:params:netconf:base:1.0"
	Base11        = "urn:ietf:params:netconf:base:1.1"
	CapRunning    = "urn:ietf:params:netconf:capability:writable-running:1.0"
	CapCandidate  = "urn:ietf:params:netconf:capability:candidate:1.0"
	CapConfirmed  = "urn:ietf:params:netconf:capability:confirmed-commit:1.1"
	CapValidate   = "urn:ietf:params:netconf:capability:validate:1.1"
	CapRollback   = "urn:ietf:params:netconf:capability:rollback-on-error:1.0"
	OpticalNS     = "http://www.polatis.com/yang/optical-switch"
	OpticalModule = "optical-switch"
	OpticalRev    = "2018-03-22"
)
