// Package scpi serves a device model in the SCPI dialect of Polatis switches: lines over TCP, commands without answers,
// and an error queue per session. Ports are 1..N on the ingress side and N+1..2N on the egress side. It has its own
// parser, so that tests find errors of the driver's parser.
//
// Layer: above ocsctl/device. It holds no state of the switch.
package scpi
