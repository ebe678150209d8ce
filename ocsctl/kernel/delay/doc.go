// Package delay delays frames: it takes the frames that arrive at ports of a bridge, and gives them to the bridge after a
// time, as a long fiber does. It is for measurements. It needs no netem, which many kernels lack.
//
// The frames pass this process, so it uses a processor: about 2 us for each frame, or for each row of frames that an
// offload has joined.
//
// Layer: ocsctl/kernel.
package delay
