// Package ocsctl is a rank's interface to optical circuit switches: maps, epochs and the reconfiguration barrier, with
// their errors. Packages controller/local and controller/rpc implement it. It knows permutations and ports, not
// collectives.
//
// Layer: innermost, beside plans; it imports plans/circuit only.
package ocsctl
