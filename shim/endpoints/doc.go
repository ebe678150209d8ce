// Package endpoints makes the ends of planes: memory, TCP, RDMA, and emulated and steered circuits.
package endpoints
