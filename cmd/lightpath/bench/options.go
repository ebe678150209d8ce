package bench

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"lightpath/bench"
	"lightpath/cmd/lightpath/cli"
	"lightpath/collectives/datatype"
	"lightpath/collectives/schedule"
	"lightpath/collectives/schedule/msccl"
	"lightpath/plans"
	"lightpath/shim/settings"
)

// options returns the benchmark that the flags, the environment and the launcher describe.
func (f *flags) options(collective string, ranksGiven bool) (*bench.Options, error) {
	var err error
	o := &bench.Options{
		Ranks:  bench.Ranks{N: f.ranks, Transport: f.transport, Deadline: f.timeout, Threads: f.threads},
		Fabric: f.fabric, Planner: f.planner, Algorithm: f.algorithm, Planes: f.planes,
	}
	if o.Specs, err = f.specs(collective); err != nil {
		return nil, err
	}
	if o.Ranks.Buffers, err = f.buffers(); err != nil {
		return nil, err
	}
	if f.library != "" {
		if o.Ranks.Library, err = filepath.Abs(f.library); err != nil {
			return nil, fmt.Errorf("--library: %w", err)
		}
	}
	if err := f.place(o, ranksGiven); err != nil {
		return nil, err
	}
	if o.Ranks.Transport, err = f.transportOf(o); err != nil {
		return nil, err
	}
	if err := f.validate(o); err != nil {
		return nil, err
	}
	o.Ranks.Worker, err = cli.SiblingFile("bin", "lightpath-rank")
	return o, err
}

// specs returns a spec for every element type and operator that the flags name.
func (f *flags) specs(collective string) ([]bench.Spec, error) {
	s := bench.Spec{
		Root: f.root, Factor: f.factor, Warmup: f.warmup, Iters: f.iters, Check: f.check != 0,
		Sync: f.sync, Graph: f.graph, Pause: f.rest,
		OutOfPlace: f.outOfPlace || !f.inPlace, InPlace: f.inPlace || !f.outOfPlace,
	}
	var err error
	if s.Collective, err = schedule.ParseCollective(collective); err != nil {
		return nil, err
	}
	if s.MinBytes, err = bench.ParseBytes(f.minBytes); err != nil {
		return nil, fmt.Errorf("-b: %w", err)
	}
	if s.MaxBytes, err = bench.ParseBytes(f.maxBytes); err != nil {
		return nil, fmt.Errorf("-e: %w", err)
	}
	types, err := parseAll(f.datatype, datatype.ParseType, int(datatype.NumTypes))
	if err != nil {
		return nil, fmt.Errorf("-d: %w", err)
	}
	ops, err := parseAll(f.op, datatype.ParseOp, int(datatype.NumOps))
	if err != nil {
		return nil, fmt.Errorf("-o: %w", err)
	}
	if !s.Collective.Reduces() {
		ops = ops[:1]
	}
	var all []bench.Spec
	for _, s.Type = range types {
		for _, s.Op = range ops {
			all = append(all, s)
		}
	}
	return all, nil
}

// parseAll returns the value that text names, or all n values if text is "all".
func parseAll[T ~int | ~uint8](text string, parse func(string) (T, error), n int) ([]T, error) {
	if text != "all" {
		v, err := parse(text)
		return []T{v}, err
	}
	var all []T
	for v := range n {
		all = append(all, T(v))
	}
	return all, nil
}

// place decides whether a launcher has started the ranks. A number of ranks that differs from the launcher's would
// start that many ranks in each of its processes, so it is refused.
func (f *flags) place(o *bench.Options, ranksGiven bool) error {
	w, launched, err := bench.DetectWorld(os.Getenv)
	switch {
	case err != nil:
		return err
	case !launched || ranksGiven && w.Size == 1:
		return nil // a job of one process is often a shell of an allocation
	case ranksGiven && f.ranks != w.Size:
		return fmt.Errorf("-n: %s started %d ranks (%s=%d): leave -n out, or unset %[3]s to start %[5]d ranks here",
			w.Launcher, w.Size, w.RankVariable, w.Rank, f.ranks)
	}
	o.Ranks.World, o.Ranks.N = &w, w.Size
	return nil
}

// transportOf returns the transport of the flag, of LIGHTPATH_TRANSPORT, or "auto".
func (f *flags) transportOf(o *bench.Options) (string, error) {
	const variable = "LIGHTPATH_TRANSPORT"
	name, source := f.transport, "--transport"
	if name == "" {
		name, source = cmp.Or(os.Getenv(variable), "auto"), variable
	}
	switch name {
	case "auto", "shm", "tcp", "inproc", "rdma", "net":
	case "ebpf":
		if o.Fabric == "" {
			return "", fmt.Errorf("%s: ebpf needs a --fabric whose planes are interfaces", source)
		}
	default:
		return "", fmt.Errorf("%s: %q is none of shm, tcp, inproc, rdma, net, ebpf, auto", source, name)
	}
	return name, nil
}

func (f *flags) buffers() (bench.Buffers, error) {
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

func (f *flags) validate(o *bench.Options) error {
	s, r := &o.Specs[0], &o.Ranks
	if err := cmp.Or(cli.Within("-n", r.N, 1, plans.MaxRanks), cli.Within("-i", s.Iters, 1, bench.MaxCount),
		cli.Within("-w", s.Warmup, 0, bench.MaxCount), cli.AtLeast("--timeout", r.Deadline, 0),
		cli.Within("--rest", s.Pause, 0, bench.MaxCount*time.Millisecond),
		cli.Within("-r", s.Root, 0, r.N-1), cli.Within("--planes", o.Planes, 0, settings.MaxPlanes)); err != nil {
		return err
	}
	switch {
	case s.MaxBytes < s.MinBytes:
		return fmt.Errorf("-e: %s is below -b %s", f.maxBytes, f.minBytes)
	case s.MinBytes == 0 && s.MaxBytes > 0:
		return fmt.Errorf("-b: 0 times -f stays 0, and never reaches -e %s", f.maxBytes)
	case !(s.Factor > 1):
		return fmt.Errorf("-f: factor %v; it must be above 1", s.Factor)
	case s.Sync && r.World != nil:
		return fmt.Errorf("--sync: its barrier needs ranks that bench starts (-n), not %s", r.World.Launcher)
	case f.fit && slices.Contains([]string{"shm", "inproc"}, r.Transport):
		return errors.New("--fit: packet planes are measured over tcp, rdma or net")
	case f.fit && len(s.Sizes()) < 2:
		return fmt.Errorf("--fit: one size, %s; two sizes determine the costs", f.minBytes)
	case s.Graph < 0 || s.Graph > 0 && (!r.Buffers.OnDevice() || s.Sync):
		return fmt.Errorf("--graph: %d launches; graphs are for --memory device without --sync", s.Graph)
	case r.Library != "" && filepath.Base(r.Library) != "libnccl.so.2":
		return fmt.Errorf("--library: %s; the loader looks for a file named libnccl.so.2", r.Library)
	case r.Threads && r.World != nil:
		return fmt.Errorf("--threads: bench must start the ranks (-n), not %s", r.World.Launcher)
	case f.device >= 0 && !r.Buffers.OnDevice():
		return fmt.Errorf("--device: %d is a device for --memory device or registered, not %s", f.device, f.memory)
	}
	if o.Planner != "" {
		if err := cli.CheckPlanner(o.Planner); err != nil {
			return err
		}
		if o.Fabric == "" {
			return errors.New("--planner: planners are for optical planes (--fabric)")
		}
	}
	if o.Fabric != "" {
		file, err := cli.LoadFabric(o.Fabric)
		if err != nil {
			return err
		}
		if r.N > file.Ranks {
			return fmt.Errorf("-n: %d ranks on a fabric of %d", r.N, file.Ranks)
		}
		if f.fit && file.Optical() {
			return errors.New("--fit: packet planes are measured without --fabric, or with a file of planes without ocs")
		}
	}
	if o.Algorithm == "" {
		return nil
	}
	if err := msccl.Check(s.Collective, o.Algorithm, r.N); err != nil {
		return fmt.Errorf("--algorithm: %w", err)
	}
	return nil
}
