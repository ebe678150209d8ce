package bench

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"lightpath/bench"
	"lightpath/bench/exchange"
	"lightpath/bench/workload"
	"lightpath/cmd/lightpath/cli"
	"lightpath/plans"
	"lightpath/plans/fabric"
)

// exchangeFlags are the flags of bench alltoallv as typed.
type exchangeFlags struct {
	ranks, planes, rounds, iters int
	matrices, rate, bytes        string
	skew                         float64
	reconfig, alpha              time.Duration
	kernel                       bool
	seed                         int64
	jsonOut                      string
}

func newExchange() *cobra.Command {
	f := &exchangeFlags{}
	cmd := &cobra.Command{
		Use:   "alltoallv",
		Short: "Time demand matrices over planes with circuits: SPECTRA beside plain order",
		Long: `Times grouped sends and receives of unequal sizes through libnccl.so.2. The command makes the planes and starts
the ranks. The exchanges run by turns in two orders: scheduled by SPECTRA, and plain, by distance, as programs issue
them.

Matrices:
  moe        tokens of a mixture of experts; --skew is the sigma of the log-normal popularity of experts
  moe-fresh  the same, with a new matrix in every iteration
  gpt        tensor, data and pipeline parallelism
  benchmark  SPECTRA's sum of permutations, a quarter of them large
  uniform    the same size everywhere
  FILE       numbers, one row per line`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o, err := f.options()
			if err != nil {
				return err
			}
			if err := cli.CheckOutput("json", f.jsonOut); err != nil {
				return err
			}
			results, err := exchange.Run(cmd.Context(), o)
			o.Progress("")
			if len(results) > 0 {
				exchange.WriteTable(beside(f.jsonOut), o, results)
			}
			if err != nil {
				return cli.No(err)
			}
			if err := cli.WriteJSON("json", f.jsonOut, results); err != nil {
				return err
			}
			for _, r := range results {
				if r.Wrong > 0 {
					return cli.No(fmt.Errorf("%s, %s: %d wrong elements", r.Matrix, r.Order, r.Wrong))
				}
			}
			return nil
		},
	}
	fl := cmd.Flags()
	fl.IntVarP(&f.ranks, "ranks", "n", 8, "ranks")
	fl.IntVar(&f.planes, "planes", 2, "planes")
	fl.StringVar(&f.rate, "rate", "100Mbps", "rate of a port of a plane")
	fl.DurationVar(&f.reconfig, "reconfig", time.Millisecond, "time that a plane takes to switch")
	fl.DurationVar(&f.alpha, "alpha", 0, "latency of a transmission in the cost model of plans")
	fl.StringVar(&f.matrices, "matrix", "uniform,moe,moe-fresh,gpt,benchmark", "matrices, separated by commas")
	fl.Float64Var(&f.skew, "skew", 1, "spread of moe")
	fl.StringVar(&f.bytes, "bytes", "1M", "bytes that the busiest port sends or receives")
	fl.IntVar(&f.rounds, "rounds", 3, "turns of each matrix in each order")
	fl.IntVarP(&f.iters, "iters", "i", 5, "timed exchanges of a turn")
	fl.BoolVar(&f.kernel, "kernel", false, "planes in the kernel (needs root)")
	fl.Int64Var(&f.seed, "seed", 1, "seed of the matrices")
	fl.StringVar(&f.jsonOut, "json", "", "write the results as JSON to this file (- for standard output)")
	return cmd
}

func (f *exchangeFlags) options() (*exchange.Options, error) {
	o := &exchange.Options{
		Lightpath: cli.SelfPath(), Ranks: f.ranks, Planes: f.planes, Reconfig: f.reconfig, Alpha: f.alpha, Kernel: f.kernel,
		Rounds: f.rounds, Iters: f.iters, Progress: cli.CountLine(),
	}
	err := cmp.Or(cli.Within("-n", f.ranks, 2, plans.MaxRanks), cli.Within("--planes", f.planes, 1, plans.MaxPlanes),
		cli.AtLeast("--rounds", f.rounds, 1), cli.Within("-i", f.iters, 1, bench.MaxCount),
		cli.AtLeast("--reconfig", f.reconfig, 0),
		cli.AtLeast("--alpha", f.alpha, 0), cli.AtLeast("--skew", f.skew, 0))
	if err != nil {
		return nil, err
	}
	if o.Rate, err = fabric.ParseRate(f.rate); err != nil {
		return nil, fmt.Errorf("--rate: %w", err)
	}
	if o.Bytes, err = bench.ParseBytes(f.bytes); err != nil {
		return nil, fmt.Errorf("--bytes: %w", err)
	}
	for name := range strings.SplitSeq(f.matrices, ",") {
		m, err := f.matrix(name)
		if err != nil {
			return nil, fmt.Errorf("--matrix: %w", err)
		}
		o.Matrices = append(o.Matrices, m)
	}
	o.Worker, err = cli.SiblingFile("bin", "lightpath-rank")
	return o, err
}

// matrix returns the demand of a name.
func (f *exchangeFlags) matrix(name string) (exchange.Matrix, error) {
	m := exchange.Matrix{Name: name}
	switch name {
	case "moe", "moe-fresh":
		m.Name, m.Fresh = fmt.Sprintf("%s skew %g", name, f.skew), name == "moe-fresh"
		m.Demand = func(i int) [][]float64 {
			return workload.MoE(workload.MoEOptions{
				Ranks: f.ranks, TopK: min(2, f.ranks), Tokens: 1024, Spread: f.skew, Affine: f.skew / 2,
				PerNode: max(1, f.ranks/2), Seed: f.seed + int64(i),
			})
		}
	case "gpt":
		if f.ranks%4 != 0 {
			return m, fmt.Errorf("gpt: %d ranks are not a multiple of 4", f.ranks)
		}
		g := workload.GPT3B(f.seed)
		g.Tensor, g.Data, g.Pipeline = 2, 2, f.ranks/4
		m.Demand = func(int) [][]float64 { return workload.GPT(g) }
	case "benchmark":
		m.Demand = func(int) [][]float64 { return workload.Benchmark(f.ranks, 16, 0.003, f.seed) }
	case "uniform":
		m.Demand = func(int) [][]float64 { return uniform(f.ranks) }
	default:
		d, err := cli.DecodeArgument(name, readMatrix)
		if err != nil {
			return m, err
		}
		if len(d) != f.ranks {
			return m, fmt.Errorf("%s: %d ports for %d ranks", name, len(d), f.ranks)
		}
		m.Demand = func(int) [][]float64 { return d }
	}
	return m, nil
}

// readMatrix reads a matrix as text, rows of numbers.
func readMatrix(text []byte) ([][]float64, error) { return workload.Read(bytes.NewReader(text)) }

func uniform(n int) [][]float64 {
	d := make([][]float64, n)
	for r := range d {
		d[r] = slices.Repeat([]float64{1}, n)
	}
	return d
}
