// Package lead runs a controller while it rules: it campaigns, starts the core from the state of the rule before, and
// passes it to the front ends. When the rule ends, it takes the core from them and campaigns again.
//
// Layer: ocsctl, above the core and the journal. Commands pass it the devices and front ends; it must not know them.
package lead
