// Package peers times Lightpath beside other collective libraries in one run: Open MPI and MPICH
// (cgo/peers, the C rank of cgo/rank over MPI) and PyTorch's Gloo (gloo.py).
//
// Every contender has its rank processes for as long as a number of ranks is measured. They take
// runs over a socket and wait there without using a processor, so that contenders take turns
// sample by sample: a point (collective, ranks, size) is measured in rounds, each of them one sample of
// every contender, in an order that rotates. The first round warms up, checks every element and
// finds how many iterations a sample has, the same for all. Buffers are pages that no library
// knows, written before, and the same in all samples, as a program's are: a size has the beginning of those of the
// largest one. What a library arranges for a buffer in its first calls is not timed. A sample's time is the mean of its
// iterations on the slowest rank.
//
// Layer: bench. It knows other libraries only as programs to start.
package peers
