// Package ocspb is the wire format of package rpc: messages and services, generated from
// ocs.proto. Nothing but package rpc uses it.
//
// Layer: ocsctl/controller/rpc.
package ocspb

//go:generate protoc --go_out=. --go_opt=paths=source_relative --go-grpc_out=. --go-grpc_opt=paths=source_relative ocs.proto
