package bench

import (
	"fmt"
	"path/filepath"
	"strings"

	"lightpath/collectives/schedule"
)

// jobFile is the text that a rank process reads: settings, then a line per run. All ranks of a job get the same runs
// in the same order.
type jobFile struct {
	rank, world int
	threads     int    // ranks in this process: world or 1
	rendezvous  string // file in which rank 0 leaves the unique id
	barrier     string // shared-memory file of the barrier between timed iterations; "": no barrier
	commands    string // socket that sends the runs, instead of runs
	reserve     int64  // with commands: bytes of each of the two buffers that runs share
	buffers     Buffers
	library     string // file that the ranks must have loaded; "": any
	runs        []string
}

func (j *jobFile) encode() []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "rank=%d\nworld=%d\nthreads=%d\nrendezvous=%s\n", j.rank, j.world, j.threads, j.rendezvous)
	if j.barrier != "" {
		fmt.Fprintf(&b, "barrier=%s\n", j.barrier)
	}
	if j.commands != "" {
		fmt.Fprintf(&b, "commands=%s\nreserve=%d\n", j.commands, j.reserve)
	}
	if j.buffers.Kind != "" {
		fmt.Fprintf(&b, "memory=%s\n", j.buffers.Kind)
	}
	if j.buffers.OnDevice() && j.buffers.Device >= 0 {
		fmt.Fprintf(&b, "device=%d\n", j.buffers.Device)
	}
	if j.library != "" {
		fmt.Fprintf(&b, "library=%s\n", j.library)
	}
	for _, r := range j.runs {
		b.WriteString(r)
		b.WriteByte('\n')
	}
	return []byte(b.String())
}

// The kinds of buffers that ranks use.
const (
	LibraryBuffers    = ""           // host memory of ncclMemAlloc
	PlainBuffers      = "plain"      // host memory that the library did not allocate
	DeviceBuffers     = "device"     // memory of a CUDA device, with calls on a stream
	RegisteredBuffers = "registered" // device memory that is registered with the communicator
)

// Buffers says which memory ranks use. Device is the CUDA device of every rank; if it is below 0, ranks take devices
// in turn.
type Buffers struct {
	Kind   string
	Device int
}

// OnDevice reports whether the buffers are in device memory.
func (b *Buffers) OnDevice() bool { return b.Kind == DeviceBuffers || b.Kind == RegisteredBuffers }

// SessionJob returns the job file of a rank that takes its runs over a socket (cgo/rank/rank.h). Ranks meet through
// files in dir. plain gives the rank [PlainBuffers]. Runs that need at most reserve bytes share two buffers.
func SessionJob(rank, world int, dir, socket string, plain bool, reserve int64) []byte {
	file := jobFile{
		rank: rank, world: world, threads: 1, commands: socket, reserve: reserve,
		rendezvous: filepath.Join(dir, "unique-id"), barrier: filepath.Join(dir, "barrier"),
	}
	if plain {
		file.buffers.Kind = PlainBuffers
	}
	return file.encode()
}

// RunLine returns the line by which ranks run s once with count elements. Their reports repeat bytes.
func (s *Spec) RunLine(bytes, count int64, inPlace bool) string {
	mode := "loop"
	switch {
	case s.Sync:
		mode = "sync"
	case s.Each:
		mode = "each"
	}
	line := fmt.Sprintf("run collective=%s type=%s op=%s root=%d bytes=%d count=%d warmup=%d iters=%d check=%d "+
		"inplace=%d mode=%s",
		s.Collective, s.Type, s.Op, s.Root, bytes, count, s.Warmup, s.Iters, b2i(s.Check), b2i(inPlace), mode)
	if s.Pause > 0 {
		line += fmt.Sprintf(" pause=%d", s.Pause.Milliseconds())
	}
	if s.Graph > 0 {
		line += fmt.Sprintf(" graph=%d", s.Graph)
	}
	return line
}

// point is one run: a spec at one size, out of place or in place.
type point struct {
	spec         *Spec
	bytes, count int64
	inPlace      bool
}

// runLines returns the runs of a spec as ranks read them, and the point that each is.
func runLines(s *Spec, ranks int) (lines []string, points []point) {
	for _, bytes := range s.Sizes() {
		count := Count(s.Collective, bytes, s.Type, ranks)
		for _, inPlace := range s.variants() {
			lines = append(lines, s.RunLine(bytes, count, inPlace))
			points = append(points, point{s, bytes, count, inPlace})
		}
	}
	return lines, points
}

// variants lists the in-place flags to run, out of place first, as nccl-tests prints them. sendrecv runs out of
// place only, since a rank cannot receive into the buffer that it sends.
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
