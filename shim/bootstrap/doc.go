// Package bootstrap lets the ranks of a new communicator find each other. It has unique ids and the root that an id
// names: ranks send it their hellos and get the table of all hellos. It also has the rendezvous of a process, where the
// remaining ranks of a communicator meet again.
//
// Layer: above control and settings, below shim, which makes communicators from the tables.
package bootstrap
