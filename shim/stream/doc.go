// Package stream puts work on streams for all paths of device memory: it keeps the launches of a communicator in order,
// tells the paths how far streams have come and when graphs are gone, checks memory and captures, and issues scripts,
// with their crossings of planes with circuits.
//
// Layer: above session and circuits, below the paths. It does not know which path asks.
package stream
