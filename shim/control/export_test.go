package control

import "net"

// This file exports internals to the tests of whole communicators in package control_test.

// Mute closes the sending half of a rank's connection to the leader: the rank still receives.
func Mute(c *Star) error { return c.links[0].conn.(*net.TCPConn).CloseWrite() }
