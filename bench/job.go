package bench

import (
	"fmt"
	"path/filepath"
	"strings"

	"lightpath/collectives/schedule"
)

// jobFile is the text a worker reads: settings, then one line per run. Workers of one job
// get the same runs in the same order.
type jobFile struct {
	rank, world int
	threads     int    // ranks in this process; world for inproc, 1 otherwise
	rendezvous  string // file where rank 0 leaves the unique id
	barrier     string // shared-memory file that synchronizes timed iterations
	commands    string // socket that runs come from instead
	plain       bool   // buffers that the library does not know
	runs        []string
}

func (j *jobFile) encode() []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "rank=%d\nworld=%d\nthreads=%d\nrendezvous=%s\n", j.rank, j.world, j.threads, j.rendezvous)
	if j.barrier != "" {
		fmt.Fprintf(&b, "barrier=%s\n", j.barrier)
	}
	if j.commands != "" {
		fmt.Fprintf(&b, "commands=%s\n", j.commands)
	}
	if j.plain {
		b.WriteString("memory=plain\n")
	}
	for _, r := range j.runs {
		b.WriteString(r)
		b.WriteByte('\n')
	}
	return []byte(b.String())
}

// SessionJob is the job file of a rank that takes its runs over a socket (cgo/rank/rank.h), meeting
// the others through files in dir; plain gives it buffers that its library does not know.
func SessionJob(rank, world int, dir, socket string, plain bool) []byte {
	file := jobFile{
		rank: rank, world: world, threads: 1, plain: plain, commands: socket,
		rendezvous: filepath.Join(dir, "unique-id"), barrier: filepath.Join(dir, "barrier"),
	}
	return file.encode()
}

// RunLine is one run of a spec as ranks read it, of count elements that are reported as bytes.
func (s *Spec) RunLine(bytes, count int64, inPlace bool) string {
	mode := "loop"
	switch {
	case s.Sync:
		mode = "sync"
	case s.Each:
		mode = "each"
	}
	return fmt.Sprintf("run collective=%s type=%s op=%s root=%d bytes=%d count=%d warmup=%d iters=%d check=%d inplace=%d mode=%s",
		s.Collective, s.Type, s.Op, s.Root, bytes, count, s.Warmup, s.Iters, b2i(s.Check), b2i(inPlace), mode)
}

// runLines turns a spec into the worker's run lines, and says which size and variant each is.
func runLines(s *Spec, ranks int) (lines []string, points []point) {
	for _, bytes := range s.Sizes() {
		count := Count(s.Collective, bytes, s.Type, ranks)
		for _, inPlace := range s.variants() {
			lines = append(lines, s.RunLine(bytes, count, inPlace))
			points = append(points, point{bytes: bytes, count: count, inPlace: inPlace})
		}
	}
	return lines, points
}

type point struct {
	bytes, count int64
	inPlace      bool
}

// variants lists the in-place flags to run: out of place first, as nccl-tests prints them.
// A message cannot be received where it is sent from, so sendrecv runs out of place only.
func (s *Spec) variants() []bool {
	switch {
	case s.Collective == schedule.SendRecv || !s.InPlace:
		return []bool{false}
	case s.OutOfPlace:
		return []bool{false, true}
	}
	return []bool{true}
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}
