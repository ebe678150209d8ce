// Package agent joins the circuits of several hosts into one board. On every host an agent
// ([Server]) writes the circuits of that host's part of a fabric; the controller's end ([Board])
// drives all of them. It removes the old circuits on every host before it adds a new one on any. A
// map is in force when every host has read it back.
//
// There is one writer: the session that was opened last. A controller that takes over opens a new session, and the
// agents then refuse the previous one.
//
// Layer: ocsctl/kernel. It knows circuits and hosts, nothing of epochs or devices.
package agent
