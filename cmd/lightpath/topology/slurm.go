package topology

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/pflag"

	"lightpath/cmd/lightpath/cli"
	"lightpath/plans/lumos/place"
)

// slurmFiles are the files that tell Slurm of a cluster and of the place of a job; "": not wanted.
type slurmFiles struct {
	hosts    string
	topology string
	node     string // name of a server, with %d for its number
}

// check returns an error if --node has no effect, or a file cannot be written.
func (s *slurmFiles) check(fl *pflag.FlagSet) error {
	if fl.Changed("node") && s.hosts == "" && s.topology == "" {
		return errors.New("--node needs --hostfile or --slurm-topology")
	}
	return cmp.Or(cli.CheckOutput("hostfile", s.hosts), cli.CheckOutput("slurm-topology", s.topology))
}

func (s *slurmFiles) write(shape place.Shape, ranks [][]int32) error {
	if s.hosts == "" && s.topology == "" {
		return nil
	}
	if strings.Count(s.node, "%") != 1 || !strings.Contains(s.node, "%d") {
		return fmt.Errorf("--node: %q has to have one %%d, for the number of the server", s.node)
	}
	if s.hosts != "" {
		if err := cli.WriteOutput("hostfile", s.hosts, s.order(ranks)); err != nil {
			return err
		}
	}
	if s.topology == "" {
		return nil
	}
	return cli.WriteOutput("slurm-topology", s.topology, s.switches(shape))
}

// order returns a line for each rank: the node of its server.
func (s *slurmFiles) order(ranks [][]int32) []byte {
	var b []byte
	for _, stage := range ranks {
		for _, server := range stage {
			b = fmt.Appendf(b, s.node+"\n", server)
		}
	}
	return b
}

// switches returns the cluster as the switches of Slurm's plugin topology/tree: leaves, pods, and the core.
func (s *slurmFiles) switches(shape place.Shape) []byte {
	var b []byte
	pods, leaves, servers := shape.Domains(place.Pod), shape.Domains(place.Leaf), shape.Size(place.Leaf)
	for leaf := range leaves {
		nodes := make([]string, servers)
		for i := range nodes {
			nodes[i] = fmt.Sprintf(s.node, leaf*servers+i)
		}
		b = fmt.Appendf(b, "SwitchName=leaf%d Nodes=%s\n", leaf, strings.Join(nodes, ","))
	}
	for pod := range pods {
		first := pod * leaves / pods
		b = fmt.Appendf(b, "SwitchName=pod%d Switches=leaf[%d-%d]\n", pod, first, first+leaves/pods-1)
	}
	return fmt.Appendf(b, "SwitchName=core Switches=pod[0-%d]\n", pods-1)
}
