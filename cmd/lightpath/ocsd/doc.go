// Package ocsd has the commands that serve switches: "ocsd" is the controller of a fabric, "ocs emulate" the model of a
// switch.
//
// Layer: a room of commands, on cli. ocsctl does the work. The clients are in room ocs.
package ocsd
