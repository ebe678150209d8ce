package nic

// Of returns the path of a communicator, for tests of whole communicators in package shim.
var Of = slot.Of
