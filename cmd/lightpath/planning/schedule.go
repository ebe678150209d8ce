package planning

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"lightpath/bench"
	"lightpath/cmd/lightpath/cli"
	"lightpath/collectives/schedule"
	"lightpath/collectives/schedule/msccl"
)

// NewSchedule returns the command "schedule".
func NewSchedule() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "schedule",
		Short: "Look at the schedules of collectives; write them as MSCCL XML",
	}
	cmd.AddCommand(newScheduleShow(), newScheduleExport())
	return cmd
}

// scheduleFlags name a schedule.
type scheduleFlags struct {
	collective, algorithm string
	ranks, root           int
}

func (f *scheduleFlags) register(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringVar(&f.collective, "collective", "", "allreduce, alltoall, allgather, ...")
	fl.StringVar(&f.algorithm, "algorithm", "", "rabenseifner, bruck:4, msccl:FILE, ...")
	fl.IntVar(&f.ranks, "ranks", 0, "number of ranks (default: that of the MSCCL file)")
	fl.IntVar(&f.root, "root", 0, "root of rooted collectives")
}

// build builds and proves the schedule. A file states its own collective and ranks.
func (f *scheduleFlags) build(cmd *cobra.Command, opts ...schedule.Option) (*schedule.Schedule, error) {
	if f.algorithm == "" {
		return nil, errors.New("--algorithm is required")
	}
	file, err := msccl.Named(f.algorithm)
	if err != nil {
		return nil, fmt.Errorf("--algorithm: %w", err)
	}
	if file != nil {
		if f.collective == "" && !file.Custom {
			f.collective = file.Collective.String()
		}
		if f.ranks == 0 {
			f.ranks = file.Ranks()
		}
	}
	if err := cmp.Or(cli.Required(cmd.Flags(), "collective", "ranks"), cli.AtLeast("--ranks", f.ranks, 1),
		cli.Within("--root", f.root, 0, f.ranks-1)); err != nil {
		return nil, err
	}
	c, err := schedule.ParseCollective(f.collective)
	if err != nil {
		return nil, fmt.Errorf("--collective: %w", err)
	}
	if file != nil {
		s, err := file.For(c, f.ranks, f.root, opts...)
		if err != nil {
			return nil, fmt.Errorf("--algorithm: %s: %w", f.algorithm, err)
		}
		return s, nil
	}
	s, err := schedule.Build(c, f.algorithm, f.ranks, f.root, opts...)
	if err != nil {
		return nil, fmt.Errorf("--algorithm: %w", err)
	}
	return s, schedule.Verify(s)
}

// scheduleInfo is the output of `schedule show`, also as JSON.
type scheduleInfo struct {
	Collective string     `json:"collective"`
	Algorithm  string     `json:"algorithm"`
	Ranks      int        `json:"ranks"`
	Root       int        `json:"root"`
	Parts      int        `json:"parts_per_block"`
	Scratch    int        `json:"scratch_blocks"`
	Bytes      float64    `json:"bytes"`
	Busiest    float64    `json:"busiest_rank_bytes"` // the sum over the steps
	Steps      []stepInfo `json:"steps"`
}

// stepInfo is a step: its largest flow, and what the busiest rank sends or receives in it.
type stepInfo struct {
	Flows       int     `json:"flows"`
	Permutation bool    `json:"permutation"`
	Pattern     string  `json:"pattern"`
	Bytes       float64 `json:"bytes"`
	Busiest     float64 `json:"busiest_rank_bytes"`
	Reduces     bool    `json:"reduces"`
	Local       int     `json:"local_moves"`
}

func describeSchedule(s *schedule.Schedule, bytes float64) scheduleInfo {
	info := scheduleInfo{
		Collective: s.Collective.String(), Algorithm: s.Algorithm, Ranks: s.Ranks, Root: s.Root,
		Parts: s.Sub, Scratch: s.Blocks[schedule.Scratch], Bytes: bytes, Steps: []stepInfo{},
	}
	for t := range s.Steps {
		flows := s.Flows(t)
		st := stepInfo{Flows: len(flows), Local: len(s.Steps[t].Post)}
		sent, received := make([]float64, s.Ranks), make([]float64, s.Ranks)
		out, in := make([]int, s.Ranks), make([]int, s.Ranks)
		st.Permutation = true
		for i := range flows {
			f := &flows[i]
			b := s.ChunkBytes(f.Chunks, bytes)
			st.Bytes = max(st.Bytes, b)
			sent[f.Src] += b
			received[f.Dst] += b
			out[f.Src]++
			in[f.Dst]++
			st.Permutation = st.Permutation && out[f.Src] == 1 && in[f.Dst] == 1
			st.Busiest = max(st.Busiest, sent[f.Src], received[f.Dst])
			for _, m := range f.Moves {
				st.Reduces = st.Reduces || m.Reduce
			}
		}
		st.Pattern = pattern(flows, s.Ranks)
		info.Busiest += st.Busiest
		info.Steps = append(info.Steps, st)
	}
	return info
}

// pattern names the flows if they are a shift or an exclusive or; else it returns "".
func pattern(flows []schedule.Flow, n int) string {
	shift, xor := len(flows) > 0, len(flows) > 0
	for i := range flows {
		f, first := &flows[i], &flows[0]
		shift = shift && (f.Dst-f.Src+n)%n == (first.Dst-first.Src+n)%n
		xor = xor && f.Dst^f.Src == first.Dst^first.Src
	}
	switch {
	case len(flows) == 1:
		return fmt.Sprintf("%d -> %d", flows[0].Src, flows[0].Dst)
	case xor:
		return fmt.Sprintf("r xor %d", flows[0].Dst^flows[0].Src)
	case shift:
		return fmt.Sprintf("r + %d", (flows[0].Dst-flows[0].Src+n)%n)
	}
	return ""
}

func newScheduleShow() *cobra.Command {
	f := &scheduleFlags{}
	var size string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "show --collective C --algorithm A --ranks N [--bytes S]",
		Short: "Print the steps of a schedule: flows and bytes",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			bytes, err := bench.ParseBytes(size)
			if err != nil {
				return fmt.Errorf("--bytes: %w", err)
			}
			s, err := f.build(cmd, schedule.Disjoint)
			if err != nil {
				return err
			}
			info := describeSchedule(s, float64(bytes))
			if asJSON {
				return cli.PrintJSON(info)
			}
			return printSchedule(cli.Stdout, &info)
		},
	}
	f.register(cmd)
	cmd.Flags().StringVar(&size, "bytes", "1MiB", "size as nccl-tests counts it")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func printSchedule(w io.Writer, info *scheduleInfo) error {
	fmt.Fprintf(w, "%s %s on %d ranks: %d steps, %s bytes; the busiest rank sends or receives %s\n",
		info.Collective, info.Algorithm, info.Ranks, len(info.Steps), number(info.Bytes), number(info.Busiest))
	fmt.Fprintf(w, "blocks of %d parts, %d blocks of scratch\n", info.Parts, info.Scratch)
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "step\tflows\tbytes per flow\tbusiest rank\treduces\tlocal moves\tpattern\t")
	for i, st := range info.Steps {
		reduces := ""
		if st.Reduces {
			reduces = "yes"
		}
		name := st.Pattern
		if name == "" && st.Permutation && st.Flows > 0 {
			name = "permutation"
		}
		fmt.Fprintf(table, "%d\t%d\t%s\t%s\t%s\t%d\t%s\t\n", i, st.Flows, number(st.Bytes), number(st.Busiest), reduces,
			st.Local, name)
	}
	return table.Flush()
}

// number writes a size without an exponent.
func number(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }

func newScheduleExport() *cobra.Command {
	f := &scheduleFlags{}
	var path string
	var inPlace bool
	cmd := &cobra.Command{
		Use:   "export --collective C --algorithm A --ranks N [--xml out.xml]",
		Short: "Write a schedule as MSCCL XML",
		Long: `Writes a schedule as MSCCL XML, which MSCCL's runtimes and msccl-tools take, and Lightpath as
--algorithm msccl:FILE. Out of place, input and output are different buffers.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := f.build(cmd)
			if err != nil {
				return err
			}
			file, err := msccl.Export(s, inPlace)
			if err != nil {
				return err
			}
			return cli.WriteOutput("xml", path, msccl.Encode(file))
		},
	}
	f.register(cmd)
	cmd.Flags().StringVar(&path, "xml", "", "file to write (standard output by default)")
	cmd.Flags().BoolVar(&inPlace, "in-place", false, "for calls whose input lies in the output")
	return cmd
}
