// Package lumos plans a cluster whose core is made of optical circuit switches, after LumosCore. Pods have
// leaf and spine switches, and the h-th spines of all pods are on the h-th group of OCSes. The package knows
// the wiring. [CoreFor] turns the links that jobs need between leaves into links between pods, and those into maps of
// the switches. [Core.Update] changes maps in use, and moves few circuits. [Steps] divides the change into steps that
// leave every leaf most of its links.
//
// Layer: plans/lumos, above its sub-packages matrix, decompose and slots. It must not import planners of
// collectives. It performs no I/O and reads no clock; equal input gives an equal result.
package lumos
