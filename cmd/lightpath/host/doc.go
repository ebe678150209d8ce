// Package host has the commands about one host: "run" starts ranks or becomes one, "ranks" asks running ranks, and
// "doctor" and "topo" show the installation and the hardware.
//
// Layer: a room of commands, on cli. It plans nothing, and speaks to no switch.
package host
