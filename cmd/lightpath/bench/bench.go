package bench

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"lightpath/bench"
	"lightpath/bench/calibrate"
	"lightpath/cmd/lightpath/cli"
	"lightpath/collectives/schedule"
)

// flags are the flags as typed. options turns them into options.
type flags struct {
	ranks                int
	minBytes, maxBytes   string
	factor               float64
	datatype, op         string
	root                 int
	warmup, iters, check int
	transport, fabric    string
	planner, algorithm   string
	planes               int
	jsonOut              string
	sync, fit            bool
	outOfPlace, inPlace  bool
	threads              bool
	memory, library      string
	device, graph        int
	rest, timeout        time.Duration
}

// New returns the command "bench".
func New() *cobra.Command {
	f := &flags{}
	names := schedule.CollectiveNames()
	cmd := &cobra.Command{
		Use:   "bench COLLECTIVE",
		Short: "Time a collective with nccl-tests' columns",
		Long: `Times a collective through libnccl.so.2. It starts the ranks itself; under mpirun, srun or torchrun each
process is one rank. A size is the data of the whole operation, as in nccl-tests. Exits 1 if an element is wrong.

Flags are those of nccl-tests, with these differences:
  -n is the number of ranks to start here; nccl-tests takes it as the timed iterations, which are -i here
  -i is the number of timed iterations; nccl-tests takes it as the step between sizes (only -f steps here)
  -g and -t must be 1: every rank is a process with one device (--threads makes ranks threads of one process)

COLLECTIVE: ` + strings.Join(names, ", "),
		ValidArgs: names,
		Args:      cobra.MatchAll(cli.OneArgument, cobra.OnlyValidArgs),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := refuseForeign(cmd.Flags()); err != nil {
				return err
			}
			if err := cli.CheckOutput("json", f.jsonOut); err != nil {
				return err
			}
			o, err := f.options(args[0], cmd.Flags().Changed("ranks"))
			if err != nil {
				return err
			}
			return run(cmd, f, o)
		},
	}
	f.register(cmd)
	registerForeign(cmd.Flags())
	cmd.AddCommand(newBarrier(), newPeers(), newLatency(), newExchange(), newKernels())
	return cmd
}

func (f *flags) register(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.IntVarP(&f.ranks, "ranks", "n", 2, "ranks to start on this machine")
	fl.StringVarP(&f.minBytes, "minbytes", "b", "8", "smallest size")
	fl.StringVarP(&f.maxBytes, "maxbytes", "e", "64M", "largest size")
	fl.Float64VarP(&f.factor, "stepfactor", "f", 2, "factor between sizes")
	fl.StringVarP(&f.datatype, "datatype", "d", "float", "element type, or all")
	fl.StringVarP(&f.op, "op", "o", "sum", "reduction operator, or all")
	fl.IntVarP(&f.root, "root", "r", 0, "root rank")
	fl.IntVarP(&f.warmup, "warmup", "w", 5, "iterations before timing")
	fl.DurationVar(&f.rest, "rest", 0, "rest after the warm-up, then repeat it: meanwhile ranks open memory of others")
	fl.IntVarP(&f.iters, "iters", "i", 20, "timed iterations")
	fl.IntVarP(&f.check, "check", "c", 1, "check every element of the results (0: no)")
	fl.StringVar(&f.transport, "transport", "",
		"shm, tcp, inproc, rdma, net, ebpf (with --fabric) or auto (default LIGHTPATH_TRANSPORT, else auto)")
	cli.FabricFlag(cmd, &f.fabric, "fabric file: run over its optical planes")
	fl.StringVar(&f.planner, "planner", "", "planner for optical planes")
	fl.StringVar(&f.algorithm, "algorithm", "", "algorithm instead of the automatic choice")
	fl.IntVar(&f.planes, "planes", 0, "packet planes (0: the default)")
	fl.StringVarP(&f.jsonOut, "json", "J", "", "write results as JSON to this file (- for standard output)")
	fl.BoolVar(&f.sync, "sync", false, "time each iteration behind a barrier: median completion of the slowest rank")
	fl.BoolVar(&f.fit, "fit", false,
		"fit the costs of packet planes to the times of all sizes, and print the line of a fabric file")
	fl.BoolVar(&f.outOfPlace, "out-of-place", false, "only out of place")
	fl.BoolVar(&f.inPlace, "in-place", false, "only in place")
	fl.BoolVar(&f.threads, "threads", false, "ranks are threads of one process")
	fl.StringVar(&f.memory, "memory", "host",
		"host (ncclMemAlloc), plain (malloc), device (CUDA, calls on a stream) or registered (device with ncclCommRegister)")
	fl.IntVar(&f.device, "device", -1, "CUDA device of every rank, with device memory (-1: ranks take devices in turn)")
	fl.IntVarP(&f.graph, "graph", "G", 0, "capture the iterations into a CUDA graph and time this many launches of it")
	fl.StringVar(&f.library, "library", "", "another libnccl.so.2 to time, such as NVIDIA's")
	fl.DurationVar(&f.timeout, "timeout", 0, "give up after this long")
}

// foreignFlag is a flag of nccl-tests that bench refuses by name. Its value 1 is accepted if one is set: it asks for
// what bench does anyway.
type foreignFlag struct {
	name, short string
	one         bool
	instead     string
}

var foreignFlags = []foreignFlag{
	{"ngpus", "g", true, "every rank has one device: start more ranks with -n"},
	{"nthreads", "t", true, "start ranks with -n, as threads of one process with --threads"},
	{"stepbytes", "", false, "sizes differ by a factor (-f)"},
	{"agg_iters", "m", true, "calls are not aggregated"},
	{"run_cycles", "N", true, "run the command again for another cycle"},
	{"parallel_init", "p", false, "ranks initialize by themselves"},
	{"blocking", "z", false, "calls run back to back; --sync times each of them"},
	{"stream_null", "y", false, "device calls use a stream of their own"},
	{"average", "a", true, "the time is the mean over ranks"},
	{"local_register", "R", false, "use --memory registered"},
	{"report_cputime", "C", false, "bench reports the time of the operation"},
}

// registerForeign makes the flags of nccl-tests known without showing them in the help.
func registerForeign(fl *pflag.FlagSet) {
	for _, g := range foreignFlags {
		fl.StringP(g.name, g.short, "", "of nccl-tests")
		_ = fl.MarkHidden(g.name) // the flag exists
	}
}

func refuseForeign(fl *pflag.FlagSet) error {
	for _, g := range foreignFlags {
		value := fl.Lookup(g.name)
		if !value.Changed || g.one && value.Value.String() == "1" {
			continue
		}
		name := "--" + g.name
		if g.short != "" {
			name = "-" + g.short
		}
		return fmt.Errorf("%s: this flag of nccl-tests is not supported: %s", name, g.instead)
	}
	return nil
}

// document is the JSON output.
type document struct {
	*bench.Document
	Packets *calibrate.PacketCosts `json:"packet_planes,omitempty"`
}

func run(cmd *cobra.Command, f *flags, o *bench.Options) error {
	quiet := o.Ranks.World != nil && o.Ranks.World.Rank != 0
	table := beside(f.jsonOut)
	if quiet {
		table = io.Discard
	}
	// Ranks of a launcher find each other through a file of rank 0, which starts the switch before.
	if o.Fabric != "" && !quiet {
		stop, err := bench.EnsureOCS(cmd.Context(), o.Fabric, cli.SelfPath())
		if err != nil {
			return err
		}
		defer stop()
	}
	fmt.Fprintf(table, "# lightpath bench %s  ranks %d  transport %s  warmup %d  iters %d  check %d%s\n",
		o.Specs[0].Collective, o.Ranks.N, o.Ranks.Transport, f.warmup, f.iters, f.check, f.unusual(o.Ranks.World))
	rows := bench.NewTable(table)
	o.OnResult = rows.Add
	doc, err := bench.Run(cmd.Context(), o)
	if err != nil {
		rows.Break()
		return cli.No(err)
	}
	rows.End()
	out := document{Document: doc}
	if f.fit && !quiet {
		if out.Packets, err = calibrate.FitPackets(doc); err != nil {
			return cli.No(fmt.Errorf("--fit: %w", err))
		}
		fmt.Fprintf(table, "# %v    the times are at most %.1f %% off\n", out.Packets.Fabric(), 100*out.Packets.Off)
		if out.Packets.Off > 0.2 {
			fmt.Fprintln(table, "# to come closer, leave out small sizes (-b), and measure idle hosts")
		}
	}
	if !quiet {
		if err := cli.WriteJSON("json", f.jsonOut, out); err != nil {
			return err
		}
	}
	if r := doc.Wrong(); r != nil {
		return cli.No(fmt.Errorf("%s of %d bytes: %d wrong elements", r.Collective, r.Bytes, *r.Wrong))
	}
	return nil
}

// unusual lists the settings that are not the default, for the first line of the table.
func (f *flags) unusual(w *bench.World) string {
	var text string
	if w != nil { // each process sees its own rank only, and fails if its elements are wrong
		text += fmt.Sprintf("  times and #wrong of rank %d (%s)", w.Rank, w.Launcher)
	}
	if f.memory != "host" {
		text += "  memory " + f.memory
	}
	if f.threads {
		text += "  threads"
	}
	if f.graph > 0 {
		text += fmt.Sprintf("  graph launches %d", f.graph)
	}
	if f.library != "" {
		text += "  library " + f.library
	}
	return text
}

// beside returns where a table goes: to standard output, unless the results as JSON go there.
func beside(jsonOut string) io.Writer {
	if jsonOut == "-" {
		return os.Stderr
	}
	return cli.Stdout
}
