// Package steps divides calls of one communicator into groups on host memory that run one after another: calls that are
// cut into pieces, and calls whose buffers the CPU must have in staging memory.
//
// Layer: above session, below the paths. It calls no driver: the paths copy between devices and staging memory.
package steps
