// Package datatype defines the element types and reduction operators of the NCCL ABI. It reduces, scales and converts
// elements without C.
//
// The kernels in Go define the results. If the CPU has AVX2 or AVX-512, the package uses assembly with the same
// results, bit for bit. Folder asm holds the generator of the assembly.
//
// The package imports no other package of Lightpath. It has no state and does no I/O.
package datatype
