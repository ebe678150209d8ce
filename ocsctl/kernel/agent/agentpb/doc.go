// Package agentpb has the messages between a controller and the agents of its hosts; agent.proto describes them.
//
// Layer: ocsctl/kernel/agent.
package agentpb

//go:generate protoc --go_out=. --go_opt=paths=source_relative --go-grpc_out=. --go-grpc_opt=paths=source_relative agent.proto
