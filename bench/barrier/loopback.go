package barrier

import (
	"context"
	"net"

	"lightpath/ocsctl"
	"lightpath/ocsctl/controller"
	"lightpath/ocsctl/controller/rpc"
)

// Loopback starts a controller of one plane in this process. dial, which is for [Options.Dial], connects to it by gRPC
// over the loopback interface. Call stop after all clients are closed.
func Loopback(ranks int) (dial func(port int) (ocsctl.Client, error), stop func(), err error) {
	core, err := startCore(ranks)
	if err != nil {
		return nil, nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		core.Close()
		return nil, nil, err
	}
	server, err := rpc.Serve(l, rpc.ServerOptions{
		Controller: func() (controller.Controller, string) { return core, "" },
		Ports:      ranks, Planes: make([]ocsctl.PlaneInfo, 1), DataPlane: ocsctl.DataNone, Name: "barrier",
	})
	if err != nil {
		core.Close()
		return nil, nil, err
	}
	stop = func() {
		server.Close()
		core.Close()
	}
	return func(port int) (ocsctl.Client, error) {
		return rpc.Dial(context.Background(), []string{l.Addr().String()}, port, rpc.Options{})
	}, stop, nil
}
