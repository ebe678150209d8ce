// Package delay delays frames: it takes the frames that arrive at ports of a bridge, and gives them to the bridge after
// a time, as a long fiber does. It is for measurements. It needs no netem, which many kernels lack.
//
// The frames pass this process: 1 Gb/s take about a fifth of a processor, at an MTU of 9000.
//
// Layer: ocsctl/kernel.
package delay
