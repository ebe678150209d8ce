package local

import (
	"errors"
	"fmt"
	"testing"
	"unsafe"

	"lightpath/internal/require"
	"lightpath/internal/shmring"
	"lightpath/ocsctl"
	"lightpath/ocsctl/controller"
	"lightpath/plans/circuit"
)

// ends returns a rank's and the core's view of one port's memory.
func ends(t testing.TB, g geometry) (rank, core *portView) {
	t.Helper()
	mem := make([]byte, g.size()+lineSize)
	mem = mem[-uintptr(unsafe.Pointer(&mem[0]))&(lineSize-1):]
	if _, err := g.view(mem); err == nil {
		t.Fatal("memory that is not a port's was accepted")
	}
	g.format(mem)
	var err error
	if rank, err = g.view(mem); err == nil {
		core, err = g.view(mem)
	}
	require.NoError(t, err)
	if _, err := g.view(mem[:g.size()-1]); err == nil {
		t.Fatal("short memory was accepted")
	}
	return rank, core
}

func TestPostsComeAsTheyWereMade(t *testing.T) {
	rank, core := ends(t, geometry{2, 5})
	taker := newTaker(2, 5)
	type post struct {
		plane  int
		epoch  uint32
		holder uint64
		target circuit.Permutation
	}
	var got []post
	take := func() {
		t.Helper()
		require.NoError(t, taker.take(core, func(plane int, epoch uint32, holder uint64, target circuit.Permutation) {
			got = append(got, post{plane, epoch, holder, target.Clone()})
		}))
	}
	maps := []circuit.Permutation{circuit.Shift(5, 1), circuit.AllDark(5), {4, circuit.Dark, 2, 3, 0}}
	for i, m := range maps {
		if !rank.post(1, uint32(i+7), 1<<63+uint64(i), m) {
			t.Fatal("no room")
		}
	}
	take()
	take()
	if len(got) != 3 {
		t.Fatal(got)
	}
	for i, p := range got {
		if p.plane != 1 || p.epoch != uint32(i+7) || p.holder != 1<<63+uint64(i) || !p.target.Equal(maps[i]) {
			t.Errorf("%v", p)
		}
	}
	for range postSlots {
		if !rank.post(0, 1, holder, maps[0]) {
			t.Fatal("no room")
		}
	}
	if rank.post(0, 1, holder, maps[0]) {
		t.Error("more posts than there is room for")
	}
	if got = nil; true {
		take()
	}
	if len(got) != postSlots || !rank.post(0, 1, holder, maps[0]) {
		t.Errorf("%d posts", len(got))
	}
}

// FuzzPosts: whatever a rank writes into its memory, the core passes on maps or refuses the rank.
func FuzzPosts(f *testing.F) {
	f.Add(uint32(3), uint32(0), []byte{0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0})
	f.Add(uint32(3), uint32(20), []byte{9, 0, 0, 0, 0, 0, 0, 0, 255, 255, 255, 255, 1, 0, 0, 0, 1, 0, 0, 0})
	f.Add(uint32(1<<31), uint32(1), []byte{7})
	f.Fuzz(func(t *testing.T, produced, length uint32, target []byte) {
		rank, core := ends(t, geometry{1, 3})
		for range produced % 12 {
			slot := rank.posts[0].Reserve()
			if slot == nil {
				break
			}
			copy(slot, target)
			rank.posts[0].Commit(int(length), 1)
		}
		rank.dirty.Store(1)
		err := newTaker(1, 3).take(core, func(_ int, _ uint32, _ uint64, m circuit.Permutation) {
			if m.Validate(3) != nil {
				t.Fatalf("passed on %v", m)
			}
		})
		if err != nil && !errors.Is(err, ErrProtocol) && !errors.Is(err, shmring.ErrCorrupt) {
			t.Fatal(err)
		}
	})
}

// inbox is what Server is to the core, without sockets.
type inbox struct {
	ranks       []*portView // the ranks' ends
	cores       []*portView
	attachments []controller.Attachment
	taker       *taker
	at          int
	post        controller.PostFunc
	one         func(plane int, epoch uint32, holder uint64, target circuit.Permutation)
}

func (b *inbox) Collect(post controller.PostFunc) {
	b.post = post
	for b.at = range b.cores {
		_ = b.taker.take(b.cores[b.at], b.one)
	}
}

// deaf hears nothing.
type deaf struct{}

func (deaf) Changed(int, []uint32, circuit.Permutation, error) {}
func (deaf) Refused(int, uint64, error)                        {}
func (deaf) Granted(uint64, uint64, error)                     {}
func (deaf) Wanted(uint64, uint64)                             {}
func (deaf) Closed(error)                                      {}

// quick is a device that is where it is told to be at once.
type quick struct{ at circuit.Permutation }

func (d *quick) Switch(_ int, m controller.Move) error { d.at = m.To; return nil }
func (d *quick) Map(int) (circuit.Permutation, error)  { return d.at, nil }

// BenchmarkBarrier is the work of one barrier, posts and all, on one core and without waiting: what
// bench/barrier adds to it is how long the ends take to see each other.
func BenchmarkBarrier(b *testing.B) {
	for _, ports := range []int{8, 64, 256} {
		b.Run(fmt.Sprintf("%dports", ports), func(b *testing.B) {
			maps := []circuit.Permutation{circuit.Shift(ports, 2), circuit.Shift(ports, 1)}
			core, err := controller.NewManual(controller.Config{
				Ports: ports, Planes: make([]controller.PlaneConfig, 1), Device: &quick{maps[1]},
			}, func() int64 { return 1 })
			require.NoError(b, err)
			defer core.Close()
			page := statusPage{mem: make([]byte, statusSize(1, ports)), ports: ports}
			if _, err := core.Attach(pageSink{&Server{status: page}}, controller.AttachOptions{Port: -1}); err != nil {
				b.Fatal(err)
			}
			in := &inbox{taker: newTaker(1, ports)}
			in.one = func(plane int, epoch uint32, holder uint64, target circuit.Permutation) {
				in.post(in.attachments[in.at], plane, epoch, holder, target)
			}
			for p := range ports {
				a, err := core.Attach(deaf{}, controller.AttachOptions{Port: p})
				require.NoError(b, err)
				rank, end := ends(b, geometry{1, ports})
				in.ranks, in.cores, in.attachments = append(in.ranks, rank), append(in.cores, end), append(in.attachments, a)
			}
			require.NoError(b, in.attachments[0].Acquire(1, ocsctl.Lease{Mask: 1, Holder: holder}))
			if _, err := core.AddInbox(in); err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			epoch := uint32(0)
			for b.Loop() {
				for _, r := range in.ranks {
					r.post(0, epoch, holder, maps[epoch%2])
				}
				core.Step()
				if epoch++; page.epoch(0) != epoch {
					b.Fatal(core.Waiting(0))
				}
			}
		})
	}
}
