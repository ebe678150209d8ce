// Package lumos plans a cluster whose core is made of optical circuit switches, after
// LumosCore: pods of leaf and spine switches, the h-th spine of every pod on the h-th group
// of OCSes. It knows the wiring, turns the links that jobs need between leaves into links
// between pods ([Plan]), those into maps of the switches ([Realize]), and changes maps that
// are in use with few circuits moved ([Core], [Change]) and in steps that leave every leaf most
// of its links ([Steps]).
//
// Layer: part of plans. It performs no I/O and reads no clock; equal input, equal result. Sub-packages:
// matrix (sparse counts), decompose (the two theorems on which it stands), slots (links in
// numbered slots, changed with few moves).
package lumos
