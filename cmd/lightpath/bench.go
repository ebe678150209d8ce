package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"lightpath/bench"
	"lightpath/collectives/datatype"
	"lightpath/collectives/schedule"
	"lightpath/collectives/schedule/msccl"
	"lightpath/plans/fabric"
	"lightpath/plans/planner"
)

// benchFlags are the flags as typed; parse turns them into options.
type benchFlags struct {
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
	sync                 bool
	outOfPlace, inPlace  bool
	threads              bool
	memory, library      string
	device, graph        int
	timeout              time.Duration
}

func newBenchCommand() *cobra.Command {
	f := &benchFlags{}
	var names []string
	for c := range schedule.NumCollectives {
		names = append(names, c.String())
	}
	cmd := &cobra.Command{
		Use:   "bench COLLECTIVE",
		Short: "Time a collective with nccl-tests' columns",
		Long: `Times a collective through libnccl.so.2, in rank processes that it starts itself, or as the
ranks that mpirun, srun or torchrun started. Sizes are nccl-tests': the whole operation's data.
Exits 1 where an element is wrong.

COLLECTIVE: ` + strings.Join(names, ", "),
		ValidArgs: names,
		Args:      cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs),
		RunE: func(cmd *cobra.Command, args []string) error {
			o, err := f.parse(args[0], cmd.Flags().Changed("ranks"))
			if err != nil {
				return err
			}
			return runBench(cmd, f, o)
		},
	}
	fl := cmd.Flags()
	fl.IntVarP(&f.ranks, "ranks", "n", 2, "ranks to start on this machine")
	fl.StringVarP(&f.minBytes, "minbytes", "b", "8", "smallest size")
	fl.StringVarP(&f.maxBytes, "maxbytes", "e", "64M", "largest size")
	fl.Float64VarP(&f.factor, "stepfactor", "f", 2, "factor between sizes")
	fl.StringVarP(&f.datatype, "datatype", "d", "float", "element type")
	fl.StringVarP(&f.op, "op", "o", "sum", "reduction operator")
	fl.IntVarP(&f.root, "root", "r", 0, "root rank")
	fl.IntVarP(&f.warmup, "warmup", "w", 5, "iterations before timing")
	fl.IntVarP(&f.iters, "iters", "i", 20, "timed iterations")
	fl.IntVarP(&f.check, "check", "c", 1, "check every element of the results (0: no)")
	fl.StringVar(&f.transport, "transport", "auto", "shm, tcp, inproc, rdma, ebpf (with --fabric) or auto")
	fl.StringVar(&f.fabric, "fabric", "", "fabric file: run over its optical planes")
	fl.StringVar(&f.planner, "planner", "", "planner for optical planes")
	fl.StringVar(&f.algorithm, "algorithm", "", "algorithm instead of the automatic choice")
	fl.IntVar(&f.planes, "planes", 0, "packet planes (0: the default)")
	fl.StringVar(&f.jsonOut, "json", "", "write results as JSON to this file (- for standard output)")
	fl.BoolVar(&f.sync, "sync", false, "time each iteration behind a barrier: median completion of the slowest rank")
	fl.BoolVar(&f.outOfPlace, "out-of-place", false, "only out of place")
	fl.BoolVar(&f.inPlace, "in-place", false, "only in place")
	fl.BoolVar(&f.threads, "threads", false, "ranks are threads of one process")
	fl.StringVar(&f.memory, "memory", "host", "host (ncclMemAlloc), plain (malloc), device (CUDA, calls on a stream) or registered (the same, with ncclCommRegister)")
	fl.IntVar(&f.device, "device", -1, "CUDA device of every rank, with memory of devices (-1: ranks take them in turn)")
	fl.IntVar(&f.graph, "graph", 0, "capture the iterations into a CUDA graph and time so many launches of it")
	fl.StringVar(&f.library, "library", "", "another libnccl.so.2 to time, such as NVIDIA's")
	fl.DurationVar(&f.timeout, "timeout", 0, "give up after this long")
	cmd.AddCommand(newBenchBarrier(), newBenchPeers(), newBenchLatency(), newBenchExchange(), newBenchKernels())
	return cmd
}

func (f *benchFlags) parse(collective string, ranksGiven bool) (*bench.Options, error) {
	var err error
	o := &bench.Options{
		Ranks: f.ranks, Transport: f.transport, Fabric: f.fabric, Planner: f.planner, Algorithm: f.algorithm,
		Planes: f.planes, Deadline: f.timeout, Threads: f.threads,
	}
	s := &o.Spec
	s.Root, s.Factor, s.Warmup, s.Iters, s.Check, s.Sync = f.root, f.factor, f.warmup, f.iters, f.check != 0, f.sync
	s.Graph = f.graph
	s.OutOfPlace, s.InPlace = f.outOfPlace || !f.inPlace, f.inPlace || !f.outOfPlace
	if s.Collective, err = schedule.ParseCollective(collective); err != nil {
		return nil, err
	}
	if s.Type, err = datatype.ParseType(f.datatype); err != nil {
		return nil, fmt.Errorf("-d: %w", err)
	}
	if s.Op, err = datatype.ParseOp(f.op); err != nil {
		return nil, fmt.Errorf("-o: %w", err)
	}
	if s.MinBytes, err = bench.ParseBytes(f.minBytes); err != nil {
		return nil, fmt.Errorf("-b: %w", err)
	}
	if s.MaxBytes, err = bench.ParseBytes(f.maxBytes); err != nil {
		return nil, fmt.Errorf("-e: %w", err)
	}
	if o.Buffers, err = f.buffers(); err != nil {
		return nil, err
	}
	if f.library != "" {
		if o.Library, err = filepath.Abs(f.library); err != nil {
			return nil, fmt.Errorf("--library: %w", err)
		}
	}
	world, external, err := bench.DetectWorld(os.Getenv)
	if err != nil {
		return nil, err
	}
	if external && !ranksGiven {
		o.World, o.Ranks = &world, world.Size
	}
	if err := f.validate(o); err != nil {
		return nil, err
	}
	o.Worker, err = siblingFile("bin", "lightpath-rank")
	return o, err
}

func (f *benchFlags) buffers() (bench.Buffers, error) {
	b := bench.Buffers{Device: f.device}
	switch f.memory {
	case "host":
		b.Kind = bench.LibraryBuffers
	case bench.PlainBuffers, bench.DeviceBuffers, bench.RegisteredBuffers:
		b.Kind = f.memory
	default:
		return b, fmt.Errorf("--memory: %q is none of host, plain, device, registered", f.memory)
	}
	return b, nil
}

func (f *benchFlags) validate(o *bench.Options) error {
	switch {
	case o.Ranks < 1:
		return fmt.Errorf("-n: %d ranks; at least 1 is needed", o.Ranks)
	case o.MaxBytes < o.MinBytes:
		return fmt.Errorf("-e: %s is below -b %s", f.maxBytes, f.minBytes)
	case !(o.Factor > 1):
		return fmt.Errorf("-f: factor %v; it must be above 1", o.Factor)
	case o.Iters < 1 || o.Warmup < 0:
		return errors.New("-i must be at least 1 and -w at least 0")
	case o.Root < 0 || o.Root >= o.Ranks:
		return fmt.Errorf("-r: root %d is not one of %d ranks", o.Root, o.Ranks)
	case o.Sync && o.World != nil:
		return fmt.Errorf("--sync: the ranks must be started here (-n), not by %s: its barrier is one of processes of one parent", o.World.Launcher)
	case o.Graph < 0 || o.Graph > 0 && (!o.Buffers.OnDevice() || o.Sync):
		return fmt.Errorf("--graph: %d launches; graphs are for --memory device without --sync", o.Graph)
	case o.Library != "" && filepath.Base(o.Library) != "libnccl.so.2":
		return fmt.Errorf("--library: %s; the loader looks for a file named libnccl.so.2", o.Library)
	case o.Threads && o.World != nil:
		return fmt.Errorf("--threads: the ranks must be started here (-n), not by %s", o.World.Launcher)
	case o.Planes < 0:
		return fmt.Errorf("--planes: %d is negative", o.Planes)
	case o.Planner != "" && !slices.Contains(planner.Names(), o.Planner):
		return fmt.Errorf("--planner: %q is none of %v", o.Planner, planner.Names())
	}
	switch o.Transport {
	case "auto", "shm", "tcp", "inproc", "rdma":
	case "ebpf":
		if o.Fabric == "" {
			return errors.New("--transport: ebpf needs the --fabric whose planes are interfaces")
		}
	default:
		return fmt.Errorf("--transport: %q is none of shm, tcp, inproc, rdma, ebpf, auto", o.Transport)
	}
	if o.Fabric != "" {
		file, err := fabric.Load(o.Fabric)
		if err != nil {
			return fmt.Errorf("--fabric: %w", err)
		}
		if o.Ranks > file.Ranks {
			return fmt.Errorf("-n: %d ranks on a fabric of %d", o.Ranks, file.Ranks)
		}
	}
	if o.Algorithm == "" {
		return nil
	}
	if err := msccl.Check(o.Collective, o.Algorithm, o.Ranks); err != nil {
		return fmt.Errorf("--algorithm: %w", err)
	}
	return nil
}

func runBench(cmd *cobra.Command, f *benchFlags, o *bench.Options) error {
	quiet := o.World != nil && o.World.Rank != 0
	var table io.Writer = os.Stdout
	if f.jsonOut == "-" {
		table = os.Stderr
	}
	if quiet {
		table = io.Discard
	}
	// The ranks of a foreign launcher meet through what rank 0 leaves them, by when the switch runs.
	if o.Fabric != "" && !quiet {
		stop, err := bench.EnsureOCS(cmd.Context(), o.Fabric, selfPath())
		if err != nil {
			return err
		}
		defer stop()
	}
	if !quiet && isTerminal(os.Stderr) {
		o.Progress = func(done, total int, r bench.Report) {
			fmt.Fprintf(os.Stderr, "\r%d/%d  %d bytes: %.1f us        ", done, total, r.Bytes, r.TimeUS)
			if done == total {
				fmt.Fprint(os.Stderr, "\r\033[K")
			}
		}
	}
	fmt.Fprintf(table, "# lightpath bench %s  ranks %d  transport %s  warmup %d  iters %d  check %d%s\n",
		o.Collective, o.Ranks, o.Transport, o.Warmup, o.Iters, f.check, f.about())
	doc, err := bench.Run(cmd.Context(), o)
	if err != nil {
		return no(err)
	}
	bench.WriteTable(table, doc.Results)
	if f.jsonOut != "" && !quiet {
		if err := writeJSON("json", f.jsonOut, doc); err != nil {
			return err
		}
	}
	for _, r := range doc.Results {
		if r.Wrong > 0 {
			return no(fmt.Errorf("%s of %d bytes: %d wrong elements", r.Collective, r.Bytes, r.Wrong))
		}
	}
	return nil
}

// about says what is not as usual.
func (f *benchFlags) about() string {
	var text string
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

func selfPath() string {
	self, err := os.Executable()
	if err != nil {
		return "lightpath"
	}
	return self
}

func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
