// Package calls has the calls of NCCL as data: their kinds, arguments and options, their one check, and the shape that
// all ranks share.
//
// Layer: above comm and memory, below all rooms that carry calls. It never reads or writes a buffer, except the scalar
// of an operator.
package calls
