package bench

import (
	"fmt"
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
	runs        []string
}

func (j *jobFile) encode() []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "rank=%d\nworld=%d\nthreads=%d\nrendezvous=%s\n", j.rank, j.world, j.threads, j.rendezvous)
	if j.barrier != "" {
		fmt.Fprintf(&b, "barrier=%s\n", j.barrier)
	}
	for _, r := range j.runs {
		b.WriteString(r)
		b.WriteByte('\n')
	}
	return []byte(b.String())
}

// runLines turns a spec into the worker's run lines, and says which size and variant each is.
func runLines(s *Spec, ranks int) (lines []string, points []point) {
	mode := "loop"
	if s.Sync {
		mode = "sync"
	}
	for _, bytes := range s.Sizes() {
		count := Count(s.Collective, bytes, s.Type, ranks)
		for _, inPlace := range s.variants() {
			lines = append(lines, fmt.Sprintf(
				"run collective=%s type=%s op=%s root=%d bytes=%d count=%d warmup=%d iters=%d check=%d inplace=%d mode=%s",
				s.Collective, s.Type, s.Op, s.Root, bytes, count, s.Warmup, s.Iters, b2i(s.Check), b2i(inPlace), mode))
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
