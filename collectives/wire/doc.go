// Package wire defines the header that precedes every payload on every plane, and checks it.
//
// It imports no other package of Lightpath. It does no I/O and does not allocate.
package wire
