package staged

// What follows is for tests of whole communicators in package shim.

// BriefMost is the most bytes that all ranks have in a step that a driver's thread begins.
const BriefMost = briefMost

// Of returns what a communicator has for launches that are staged.
var Of = slot.Of
