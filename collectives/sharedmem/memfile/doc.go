// Package memfile maps memory of another process of the host, from the file that contains it.
//
// Layer: inside collectives; it imports nothing of them.
package memfile
