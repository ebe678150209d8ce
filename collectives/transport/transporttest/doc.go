// Package transporttest is the conformance suite of the transports. It checks the properties of [transport.Endpoint]
// that package exec relies on, in the same way for every implementation.
//
// Only tests may import it. [WithFaults] also serves tests of package exec.
package transporttest
