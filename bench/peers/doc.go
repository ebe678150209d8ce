// Package peers times Lightpath beside other collective libraries in one run: Open MPI and MPICH
// (cgo/peers, the C rank of cgo/rank over MPI) and PyTorch's Gloo (gloo.py).
//
// The rank processes of every contender live as long as a number of ranks is measured. They receive runs over a socket
// and wait there without using a processor, so contenders take turns sample by sample. A point (collective, ranks,
// size) is measured in rounds. A round has one sample of every contender, in an order that rotates. The first round
// warms up, checks every element and chooses the iterations of a sample, which are the same for all contenders.
//
// Buffers are ordinary pages, written before the first sample, and the same in all samples. Every size uses the
// beginning of the buffers of the largest size. The first calls, in which a library adapts to a buffer, are not timed.
// The time of a sample is the mean of its iterations on the slowest rank.
//
// Layer: bench. It knows other libraries only as programs to start.
package peers
