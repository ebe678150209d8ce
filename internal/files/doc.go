// Package files reads and writes the files that users name.
//
// Layer: a leaf that every layer may use. It knows no format. Reads are bounded, and a write
// replaces a regular file atomically but never a device, a FIFO or a link.
package files
