package kernel

import (
	"encoding/binary"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"testing"
	"time"

	"lightpath/internal/require"
	"lightpath/plans/circuit"
)

// Circuits carry to the port that the map says, others do not, and every frame is accounted for.
func TestCircuits(t *testing.T) {
	t.Parallel()
	s := up(t, fabricFile(t, 4, 2, "10Gbps", false))
	b := openBoard(t, s)
	all := hosts(t, s)
	rng := rand.New(rand.NewPCG(1, 2))
	var dark, lost [2][4]uint64
	for range 20 {
		plane := rng.IntN(2)
		m := circuit.Permutation(rng.Perm(4))
		for r := range m {
			if rng.IntN(3) == 0 {
				m[r] = circuit.Dark
			}
		}
		require.NoError(t, b.Install(plane, m))
		if got, err := b.Map(plane); err != nil || !got.Equal(m) {
			t.Fatalf("map %v, %v; want %v", got, err, m)
		}
		for r := range 4 {
			to := rng.IntN(4)
			if to == r {
				continue // a host does not send to itself over a wire
			}
			all[r].send(plane, all[to], 10, frame)
			all[r].drained(plane)
			switch m[r] {
			case to:
				all[to].expect(plane, r, 10)
			case circuit.Dark:
				dark[plane][r] += 10
			default:
				lost[plane][r] += 10
			}
			if d, l := all[r].Planes[plane].Counters.Dropped(); d != dark[plane][r] || l != lost[plane][r] {
				t.Fatalf("plane %d, map %v, rank %d to %d: dropped %d dark and %d misdirected, want %d and %d", plane, m, r, to, d,
					l, dark[plane][r], lost[plane][r])
			}
		}
	}
	for j := range 2 {
		for r := range 4 {
			if got := all[r].receive(j); got != nil {
				t.Errorf("plane %d: rank %d has got frames from %v", j, r, got)
			}
		}
	}
}

// TestDarkInTheMiddle checks that counters and lost frames agree, to the frame, while a circuit goes dark and comes
// back.
func TestDarkInTheMiddle(t *testing.T) {
	t.Parallel()
	s := up(t, fabricFile(t, 2, 1, "10Gbps", false))
	b := openBoard(t, s)
	all := hosts(t, s)
	const n = 4000
	sent, got := 0, 0
	count := func() { got += len(all[1].receive(0)) }
	// The scheduler may let a sender end while the map is the same, so n frames are sent until both cases were met.
	for dark := uint64(0); dark == 0 || got == 0; {
		done := make(chan struct{})
		go func() {
			defer close(done)
			all[0].send(0, all[1], n, frame)
		}()
		sent += n
		for i, sending := 0, true; sending; i++ {
			m := circuit.AllDark(2)
			if i%2 == 0 {
				m[0] = 1
			}
			require.NoError(t, b.Install(0, m))
			count()
			select {
			case <-done:
				sending = false
			default:
			}
		}
		all[0].drained(0)
		var misdirected uint64
		dark, misdirected = all[0].Planes[0].Counters.Dropped()
		wait(t, func() bool { count(); return got+int(dark) >= sent }, "%d received and %d dark of %d", got, dark, sent)
		if count(); got+int(dark) != sent || misdirected != 0 {
			t.Fatalf("%d received, %d dark and %d misdirected of %d", got, dark, misdirected, sent)
		}
	}
}

// On rings, ranks steer frames on, over as many hops as it takes. A frame for
// a rank off the ring comes back to its sender and ends there.
func TestRing(t *testing.T) {
	t.Parallel()
	s := up(t, fabricFile(t, 5, 1, "10Gbps", true))
	b := openBoard(t, s)
	all := hosts(t, s)
	require.NoError(t, b.Install(0, circuit.Permutation{2, circuit.Dark, 3, 4, 0})) // 0 2 3 4; 1 is alone
	for _, f := range []struct{ from, to int }{{0, 2}, {0, 3}, {0, 4}, {4, 3}} {
		all[f.from].send(0, all[f.to], 20, frame)
		all[f.to].expect(0, f.from, 20)
	}
	for _, r := range []struct {
		rank int
		want uint64 // frames that passed
	}{{0, 20}, {1, 0}, {2, 60}, {3, 20}, {4, 0}} {
		frames, payload := all[r.rank].Planes[0].Counters.Transit()
		if frames != r.want || payload != r.want*frame {
			t.Errorf("rank %d: %d frames and %d bytes in transit, want %d and %d", r.rank, frames, payload, r.want, r.want*frame)
		}
	}
	all[3].send(0, all[1], 7, frame)
	c := all[3].Planes[0].Counters
	wait(t, func() bool { _, m := c.Dropped(); return m == 7 }, "%+v", c)
	for r := range all {
		all[r].drained(0)
		if got := all[r].receive(0); got != nil {
			t.Errorf("rank %d has got frames from %v", r, got)
		}
	}
}

// Frames whose ring was changed under them, so that neither their sender nor their receiver is on it any
// more, do not go round for ever.
func TestLostOnARing(t *testing.T) {
	t.Parallel()
	s := up(t, fabricFile(t, 4, 1, "5Mbps", true)) // so slow that the ring is still full when it changes
	b := openBoard(t, s)
	all := hosts(t, s)
	require.NoError(t, b.Install(0, circuit.Permutation{2, circuit.Dark, 3, circuit.Dark}))
	const n, size = 300, 200
	all[2].send(0, all[3], 2*n, size) // a queue at 2, in which frames of 0 wait
	all[0].send(0, all[1], n, size)
	lost := func(r int) uint64 { return all[r].Planes[0].Counters.Stats().Strayed }
	wait(t, func() bool { return all[2].Planes[0].Counters.Stats().Transit >= n/2 }, "nothing passes rank 2")
	require.NoError(t, b.Install(0, circuit.Permutation{circuit.Dark, circuit.Dark, 3, 2}))
	dark := func() (sum uint64) {
		for _, r := range []int{0, 3} {
			d, _ := all[r].Planes[0].Counters.Dropped()
			sum += d
		}
		return sum
	}
	wait(t, func() bool {
		return dark()+lost(2)+lost(3) == n
	}, "%d dark, %d and %d expired of %d", dark(), lost(2), lost(3), n)
	if lost(2)+lost(3) == 0 {
		t.Error("no frame was on the ring when it changed")
	}
}

// Flows of different sources share a port evenly: a rank's own flows, and flows that the rank forwards. Of the first
// frames to arrive each flow has about half, though the rank queued all of its own first.
func TestShares(t *testing.T) {
	t.Parallel()
	s := up(t, fabricFile(t, 3, 1, "50Mbps", true))
	b := openBoard(t, s)
	all := hosts(t, s)
	require.NoError(t, b.Install(0, circuit.Shift(3, 1)))
	const n, size = 100, 8000
	for range 20 { // until both have sent at the same time for long enough: the host may stop one of them
		all[0].send(0, all[2], n, size)
		all[1].send(0, all[2], n, size)
		var from []int
		wait(t, func() bool {
			from = append(from, all[2].receive(0)...)
			return len(from) == 2*n
		}, "%d frames of %d", len(from), 2*n)
		slices.Reverse(from)
		last := max(slices.Index(from, 0), slices.Index(from, 1))
		slices.Reverse(from)
		both := from[max(slices.Index(from, 0), slices.Index(from, 1)) : len(from)-last]
		if len(both) < n {
			continue
		}
		steered := 0
		for _, r := range both {
			if r == 0 {
				steered++
			}
		}
		if steered < len(both)/3 || steered > 2*len(both)/3 {
			t.Errorf("%d of %d frames have come through rank 1, want about half", steered, len(both))
		}
		return
	}
	t.Error("the ranks have never sent at the same time")
}

// A port is never faster than its rate, but for its bucket.
func TestRate(t *testing.T) {
	t.Parallel()
	const n, size = 300, 8000
	s := up(t, fabricFile(t, 2, 1, "200Mbps", false))
	b := openBoard(t, s)
	all := hosts(t, s)
	require.NoError(t, b.Install(0, circuit.Xor(2, 1)))
	start := time.Now()
	all[0].send(0, all[1], n, size)
	all[0].drained(0)
	took := time.Since(start).Seconds()
	all[1].expect(0, 0, n)
	bits, wire := float64(n*(size+28+ethHeader))*8, s.wireRate(0)
	const frame = DefaultMTU + ethHeader
	least := (bits - 8*float64(bucket(wire, frame)+frame)) / float64(wire)
	if took < least {
		t.Errorf("%d frames in %.4f s, at %v bits per second it takes %.4f", n, took, wire, least)
	}
	t.Logf("%.1f Mb/s of %.1f", bits/took/1e6, float64(wire)/1e6)
}

// TCP works over a simplex circuit: what carries no data travels back. Data does not.
func TestTCPOverSimplex(t *testing.T) {
	t.Parallel()
	s := up(t, fabricFile(t, 2, 1, "1Gbps", false))
	b := openBoard(t, s)
	all := hosts(t, s)
	require.NoError(t, b.Install(0, circuit.Permutation{1, circuit.Dark}))
	var l net.Listener
	var out net.Conn
	require.NoError(t, within(s.Namespaces[1], func() (err error) {
		l, err = net.Listen("tcp4", net.JoinHostPort(s.Planes[0].Addrs[1].String(), "0"))
		return err
	}))
	defer l.Close()
	require.NoError(t, within(s.Namespaces[0], func() (err error) {
		out, err = net.DialTimeout("tcp4", l.Addr().String(), patience)
		return err
	}))
	defer out.Close()
	in, err := l.Accept()
	require.NoError(t, err)
	defer in.Close()

	const size = 1 << 20
	go func() { _, _ = out.Write(make([]byte, size)) }()
	require.NoError(t, in.SetDeadline(time.Now().Add(patience)))
	if _, err := io.ReadFull(in, make([]byte, size)); err != nil {
		t.Fatal(err)
	}
	back := all[1].Planes[0].Counters
	if st := back.Stats(); st.Returned == 0 || st.Forwarded != 0 || st.Dark != 0 {
		t.Errorf("port 1, which only acknowledges: %+v", st)
	}
	if st := all[0].Planes[0].Counters.Stats(); st.ForwardedBytes < size {
		t.Errorf("port 0, which has sent %d bytes: %+v", size, st)
	}
	if _, err := in.Write([]byte("back")); err != nil {
		t.Fatal(err)
	}
	wait(t, func() bool { dark, _ := back.Dropped(); return dark > 0 }, "data went back: %+v", back)
	require.NoError(t, out.SetReadDeadline(time.Now().Add(time.Millisecond)))
	if n, err := out.Read(make([]byte, 8)); err == nil {
		t.Errorf("%d bytes came back", n)
	}
}

// Reading counters neither allocates nor calls the kernel; changing a map of 64 ports does not call it.
func TestCountersAllocate(t *testing.T) {
	var c Counters
	if n := testing.AllocsPerRun(100, func() { c.Sent(); c.Offered(); c.Dropped(); c.Transit(); c.TransitOp() }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestEntry(t *testing.T) {
	for _, e := range []struct{ to, from int }{{circuit.Dark, circuit.Dark}, {0, circuit.Dark},
		{circuit.Dark, 0}, {4095, 17}} {
		if got := newEntry(e.to, e.from); got.to() != e.to || int(got>>32)-1 != e.from {
			t.Errorf("%+v became %#x", e, got)
		}
	}
	if newEntry(circuit.Dark, circuit.Dark) != 0 {
		t.Error("a new map is not dark")
	}
}

func BenchmarkInstall(b *testing.B) {
	s := up(b, fabricFile(b, 16, 1, "1Gbps", false))
	board := openBoard(b, s)
	m := []circuit.Permutation{circuit.Shift(16, 1), circuit.Xor(16, 1)}
	for i := 0; b.Loop(); i++ {
		require.NoError(b, board.Install(0, m[i%2]))
	}
}

// Frames that say which operation they belong to are counted by it where they pass, and start from
// nothing with the next one.
func TestTally(t *testing.T) {
	t.Parallel()
	s := up(t, fabricFile(t, 3, 1, "10Gbps", true))
	b := openBoard(t, s)
	all := hosts(t, s)
	require.NoError(t, b.Install(0, circuit.Shift(3, 1)))
	datagram := func(tag uint32, magic string, size int) []byte {
		d := make([]byte, size)
		binary.LittleEndian.PutUint32(d[tallyTag:], tag)
		copy(d[tallyTag+4:], magic)
		return d
	}
	c := all[1].Planes[0].Counters
	passed := uint64(0)
	for _, f := range []struct {
		n           int
		data        []byte
		tag, amount uint64
	}{
		{5, datagram(7, tallyMagic, tallyHead+1000), 7, 5000},
		{2, datagram(7, tallyMagic, tallyHead), 7, 5000},
		{3, datagram(7, tallyMagic, tallyHead+1), 7, 5003},
		{4, datagram(0xff000008, tallyMagic, tallyHead+10), 8, 40}, // only 24 bits count
		{4, datagram(9, "LPTG", tallyHead+10), 8, 40},
		{4, datagram(9, tallyMagic, tallyHead-1), 8, 40},
		{1, datagram(9, tallyMagic, tallyTag+8)[:tallyTag+7], 8, 40},
		{1, datagram(1<<24-1, tallyMagic, tallyHead+2), 1<<24 - 1, 2},
	} {
		for range f.n {
			all[0].sendData(0, all[2], f.data)
		}
		passed += uint64(f.n)
		wait(t, func() bool { return c.Sent() == passed && c.Offered() == passed }, "%+v", c)
		if got := c.TransitOp(); got>>tallyShift != f.tag || got&(1<<tallyShift-1) != f.amount {
			t.Errorf("after %d of %d bytes: %d bytes of operation %d, want %d of %d", f.n, len(f.data), got&(1<<tallyShift-1),
				got>>tallyShift, f.amount, f.tag)
		}
	}
	if got := all[0].Planes[0].Counters.TransitOp(); got != 0 {
		t.Errorf("%#x at the sender, which passes nothing on", got)
	}
}

// Frames from one rank to the next, as fast as the machine can: no rate holds them.
func BenchmarkFrames(b *testing.B) {
	for _, size := range []int{64, 1400, 8900} {
		b.Run(strconv.Itoa(size), func(b *testing.B) {
			s := up(b, fabricFile(b, 2, 1, "1Tbps", false))
			board := openBoard(b, s)
			require.NoError(b, board.Install(0, circuit.Xor(2, 1)))
			all := hosts(b, s)
			start := time.Now()
			for b.Loop() {
				all[0].send(0, all[1], 1, size)
			}
			all[0].drained(0)
			frames := float64(b.N) / time.Since(start).Seconds()
			b.ReportMetric(frames, "frames/s")
			b.ReportMetric(frames*float64(size)*8/1e9, "Gb/s")
		})
	}
}
