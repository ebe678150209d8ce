package topology

import (
	"cmp"
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"lightpath/cmd/lightpath/cli"
	"lightpath/plans/lumos"
	"lightpath/plans/lumos/cluster"
	"lightpath/plans/lumos/place"
)

// placement is the output of the command for a job, also as JSON.
type placement struct {
	Fabric  string      `json:"fabric"`
	PP      int         `json:"pp"`
	DP      int         `json:"dp"`
	EP      int         `json:"ep"`
	Ranks   [][]int32   `json:"ranks"` // servers, by stage and replica
	Pods    map[int]int `json:"pods"`  // servers by pod
	Links   []leafLinks `json:"links"`
	Longer  float64     `json:"longer"` // by what links that flows share prolong an iteration, as a share of it
	Without int         `json:"links_without_arrangement"`
}

type leafLinks struct {
	A     int32 `json:"a"`
	B     int32 `json:"b"`
	Links int   `json:"links"`
}

func newLumosPlace() *cobra.Command {
	var name, asJSON, requirement string
	var gpus, busy int
	var slurm slurmFiles
	var grid place.Grid
	shares := place.Volume{place.Forward: 0.003, place.Tokens: 0.1, place.Backward: 0.003, place.Replicas: 0.05}
	cmd := &cobra.Command{
		Use:   "place",
		Short: "Place a job in a cluster, arrange its ranks, and list the links between leaves that it needs",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cmp.Or(cli.AtLeast("--gpus", gpus, 1), slurm.check(cmd.Flags()), cli.CheckOutput("json", asJSON),
				cli.CheckOutput("requirement", requirement)); err != nil {
				return err
			}
			f, err := cluster.ParseFabric(name, gpus)
			if err != nil {
				return fmt.Errorf("--fabric: %w", err)
			}
			if err := grid.Check(); err != nil {
				return fmt.Errorf("--pp, --dp, --ep: %w", err)
			}
			p, err := placeJob(&f, grid, busy, shares)
			if err != nil {
				return err
			}
			if err := slurm.write(f.Shape(), p.Ranks); err != nil {
				return err
			}
			if requirement != "" {
				if err := p.writeRequirement(&f, requirement); err != nil {
					return err
				}
			}
			if asJSON != "" {
				return cli.WriteJSON("json", asJSON, p)
			}
			return p.print()
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&name, "fabric", "lumos-1-25.6", "cluster: clos-TIERS-CHIP or lumos-TAU-CHIP")
	fl.IntVar(&gpus, "gpus", 512, "GPUs of the cluster")
	fl.IntVar(&grid.PP, "pp", 2, "pipeline stages")
	fl.IntVar(&grid.DP, "dp", 6, "replicas of each stage")
	fl.IntVar(&grid.EP, "ep", 1, "replicas in a group of experts, which stays in a pod")
	fl.IntVar(&busy, "busy", 0, "servers of each pod that other jobs use")
	fl.StringVar(&asJSON, "json", "", "write JSON (- for standard output)")
	fl.StringVar(&requirement, "requirement", "",
		"write the links as a requirement, for lumos plan and rewire (- for standard output)")
	fl.StringVar(&slurm.hosts, "hostfile", "", "write the nodes in the order of ranks, for srun -m arbitrary")
	fl.StringVar(&slurm.topology, "slurm-topology", "", "write leaves and pods as Slurm's topology.conf")
	fl.StringVar(&slurm.node, "node", "node%d", "Slurm's name of a server; %d is its number, from 0")
	return cmd
}

// placeJob places a job in a cluster in which busy servers of each pod are taken.
func placeJob(f *cluster.Fabric, grid place.Grid, busy int, shares place.Volume) (*placement, error) {
	shape := f.Shape()
	pool := place.NewPool(shape)
	if busy < 0 || busy > shape.Size(place.Pod) {
		return nil, fmt.Errorf("--busy: a pod has %d servers, %d cannot be taken", shape.Size(place.Pod), busy)
	}
	for pod := range shape.Domains(place.Pod) {
		pool.In(place.Pod, pod, busy, 1)
	}
	a, ok := pool.Whole(grid.Servers(), grid.EP)
	if !ok {
		return nil, cli.No(fmt.Errorf("%d servers in groups of %d do not fit: %d of %d are idle", grid.Servers(), grid.EP,
			pool.Idle()/shape.ServerGPUs, shape.Servers()))
	}
	arranged, err := place.Arrange(shape, grid, a.Servers, shares)
	if err != nil {
		return nil, err
	}
	r, longer, err := arranged.Fitted(shape, shares)
	if err != nil {
		return nil, cli.No(err)
	}
	p := &placement{Fabric: f.Name, PP: grid.PP, DP: grid.DP, EP: grid.EP, Longer: longer,
		Pods: map[int]int{}, Links: []leafLinks{},
		Without: place.Naive(grid, a.Servers).Requirement(shape).Links()}
	for stage := range grid.PP {
		p.Ranks = append(p.Ranks, arranged.Server[stage*grid.DP:][:grid.DP])
	}
	for _, s := range a.Servers {
		p.Pods[shape.Of(place.Pod, s)]++
	}
	for _, pair := range r.Pairs {
		p.Links = append(p.Links, leafLinks{pair.A, pair.B, pair.Links})
	}
	return p, nil
}

// writeRequirement writes the links as a requirement file of the cluster.
func (p *placement) writeRequirement(f *cluster.Fabric, path string) error {
	if f.Kind != cluster.Lumos {
		return fmt.Errorf("--requirement: %s has no optical core", f.Name)
	}
	r, err := lumos.NewRequirement(f.Core())
	if err != nil {
		return err
	}
	for _, l := range p.Links {
		if err := r.Add(int(l.A), int(l.B), l.Links); err != nil {
			return err
		}
	}
	return cli.WriteOutput("requirement", path, r.Encode())
}

func (p *placement) print() error {
	w := tabwriter.NewWriter(cli.Stdout, 0, 8, 2, ' ', 0)
	fmt.Fprintf(w, "%s: PP %d x DP %d, EP %d, in %d pods\n", p.Fabric, p.PP, p.DP, p.EP, len(p.Pods))
	for stage, servers := range p.Ranks {
		fmt.Fprintf(w, "stage %d\tservers %v\n", stage, servers)
	}
	sum := 0
	for _, l := range p.Links {
		sum += l.Links
		fmt.Fprintf(w, "leaves %d - %d\t%d links\n", l.A, l.B, l.Links)
	}
	fmt.Fprintf(w, "links between pods\t%d (%d if ranks were not arranged)\n", sum, p.Without)
	if p.Longer > 0 {
		fmt.Fprintf(w, "flows that share links prolong an iteration by\t%.2f %%\n", 100*p.Longer)
	}
	return w.Flush()
}
