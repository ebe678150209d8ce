// Package agentpb is what a controller says to the agents of its hosts; agent.proto describes it.
//
// Layer: ocsctl/kernel/agent.
package agentpb

//go:generate protoc --go_out=. --go_opt=paths=source_relative --go-grpc_out=. --go-grpc_opt=paths=source_relative agent.proto
