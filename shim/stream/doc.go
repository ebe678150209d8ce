// Package stream puts work on streams for all paths of device memory. It keeps a communicator's launches in order, and
// tells the paths how far streams have advanced and which graphs have been destroyed. It checks memory and captures. It
// issues scripts, with their crossings of planes with circuits.
//
// Layer: above session and circuits, below the paths. It does not know which path calls it.
package stream
