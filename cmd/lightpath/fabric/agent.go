package fabric

import (
	"context"
	"fmt"
	"net"
	"os"

	"github.com/spf13/cobra"

	"lightpath/cmd/lightpath/cli"
	"lightpath/ocsctl/kernel"
	"lightpath/ocsctl/kernel/agent"
	"lightpath/plans/fabric"
)

func newAgent() *cobra.Command {
	var o flags
	var listen string
	var tls agent.TLS
	cmd := &cobra.Command{
		Use:   "agent --fabric fabric.yaml --host name",
		Short: "Write the circuits of this host's part of a fabric for its controller, until interrupted",
		Long: `Writes the circuits of this host's part of a fabric that is up, for the controller. The controller
finds the agent at the host's address in the fabric file, and drives the agents of all hosts as one switch. If
an agent does not answer, the planes are out of service. Off loopback, both ends need certificates of one
authority; certificates of ranks are refused.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cli.Required(cmd.Flags(), "fabric", "host"); err != nil {
				return err
			}
			f, err := cli.LoadFabric(o.file)
			if err != nil {
				return err
			}
			if listen == "" {
				if listen, err = hostAddress(f, o.host); err != nil {
					return err
				}
			}
			if err := cli.NeedRoot(); err != nil {
				return err
			}
			return runAgent(cmd.Context(), f, o.host, listen, tls)
		},
	}
	cli.FabricFlag(cmd, &o.file, "fabric file")
	o.addHost(cmd)
	cmd.Flags().StringVar(&listen, "listen", "", "host:port to listen on (default the host's address in the file)")
	cmd.Flags().StringVar(&tls.CA, "ca", "", "file of the authority that controllers' certificates are of")
	cmd.Flags().StringVar(&tls.Cert, "cert", "", "certificate file")
	cmd.Flags().StringVar(&tls.Key, "key", "", "key file")
	return cmd
}

// hostAddress is where the agent of a host is found.
func hostAddress(f *fabric.Fabric, host string) (string, error) {
	for i, h := range f.Hosts {
		if h.Name != host {
			continue
		}
		if h.Address == "" {
			return "", fmt.Errorf("hosts[%d]: address: missing (or --listen)", i)
		}
		return h.Address, nil
	}
	return "", fmt.Errorf("--host: the file has no host %q", host)
}

// runAgent serves a host's circuits until ctx ends.
func runAgent(ctx context.Context, f *fabric.Fabric, host, address string, tls agent.TLS) error {
	state, err := kernel.LoadOn(f, host)
	if err != nil {
		return cli.NoIf(err, kernel.Refused)
	}
	board, err := kernel.Open(state)
	if err != nil {
		return cli.NoIf(err, kernel.Refused)
	}
	defer cli.HangUp(board)
	l, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	server, err := agent.Serve(l, board, tls)
	if err != nil {
		cli.HangUp(l)
		return err
	}
	fmt.Fprintf(os.Stderr, "agent: host %s, ranks %d to %d, on %s\n", host, state.First, state.First+state.Count-1,
		l.Addr())
	if err := cli.Notify(cli.Ready); err != nil {
		server.Close()
		return err
	}
	select {
	case <-ctx.Done():
		server.Close()
		return cli.Notify(cli.Stopping)
	case err := <-server.Done():
		return err
	}
}
