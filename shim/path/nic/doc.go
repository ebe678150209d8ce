// Package nic runs calls on streams over RDMA ports, or devices of a network plugin, that access device memory. A
// goroutine posts messages when streams reach them, and lets the streams continue when the messages have completed.
//
// Layer: a path, above stream. No CPU touches the payload.
package nic
