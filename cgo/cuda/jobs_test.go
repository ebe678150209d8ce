package cuda_test

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"
	"unsafe"

	"lightpath/cgo/cuda/cudatest"
	"lightpath/collectives/datatype"
	"lightpath/shim/device"
)

// TestJobs compares kernels with a reduction, copies and words with the CPU's. Some sources of copies are in words.
func TestJobs(t *testing.T) {
	const room = 40 << 10
	for _, typ := range []datatype.Type{datatype.Uint8, datatype.Float16, datatype.Float32, datatype.Float64} {
		t.Run(typ.String(), func(t *testing.T) {
			b := newBench(t, 24*room)
			rng := rand.New(rand.NewPCG(uint64(typ), 3))
			for trial := range 24 {
				for i := range b.host {
					b.host[i] = byte(rng.Uint32()) & 0x3f
				}
				b.run(someJobs(b, typ, trial, room, rng))
			}
		})
	}
}

// someJobs uses rooms 0 to 3 for a reduction, 4 to 21 for copies, and 22 and 23 for words.
func someJobs(b *bench, typ datatype.Type, trial, room int, rng *rand.Rand) *device.Reduction {
	at := func(i, offset int) unsafe.Pointer { return unsafe.Add(b.at, i*room+offset) }
	clear(b.host[22*room:])
	word := func(i int) device.Address { return device.Address(uintptr(b.at)) + device.Address(22*room+8*i) }
	count := func() int64 {
		return int64(rng.IntN([]int{2, 70, (room - 128) / typ.Size()}[trial%3]))
	}
	r := &device.Reduction{Dst: at(0, 0), N: 3, Type: typ, Count: count(), Tag: device.SaidTag(7), Blocks: word(500)}
	for i := range 3 {
		r.Sources[i] = at(1+i, 0)
	}
	if trial%4 == 0 {
		r.N, r.Count = 0, 0
	}
	if trial%3 == 0 {
		r.Scale = device.ScaleBy(typ, 2)
	}
	for i := range rng.IntN(10) {
		c := device.Copy{Dst: at(4+2*i, rng.IntN(3)*16), Src: at(5+2*i, rng.IntN(3)*16), Count: count()}
		if rng.IntN(3) == 0 {
			c.Src = unsafe.Add(c.Src, typ.Size())
		}
		if rng.IntN(2) == 0 {
			value := uint64(uintptr(at(5+2*i, 0))) | r.Tag
			binary.NativeEndian.PutUint64(b.host[22*room+8*(400+i):], value)
			c.Found, c.Offset = at(22, 8*(400+i)), int64(16*rng.IntN(3))
		}
		c.Scaled = trial%6 == 0 && rng.IntN(2) == 0
		r.Copies = append(r.Copies, c)
	}
	for i := range device.MaxStores {
		s := device.Store{At: word(i), Value: rng.Uint64() & 0xffffffff}
		switch rng.IntN(5) {
		case 0:
			s.Wide, s.Value = true, rng.Uint64()
		case 1:
			s.Counter, s.Of = word(100+i), uint32(1+rng.IntN(2))
		case 2:
			continue
		}
		if rng.IntN(2) == 0 {
			r.Before = append(r.Before, s)
		} else {
			r.After = append(r.After, s)
		}
	}
	return r
}

// TestCountedWord: of several kernels that count, exactly the last one writes the word, in each of many rounds. A
// stream waits for it, and then sees what all kernels have written.
func TestCountedWord(t *testing.T) {
	const kernels, rounds, room = 3, 20, 1 << 10
	b := newBench(t, (kernels+3)*room)
	clear(b.host)
	for i := range room {
		b.host[i] = byte(i)
	}
	cudatest.Write(b.at, b.host)
	words := device.Address(uintptr(b.at)) + (kernels+1)*room
	streams := make([]device.Stream, kernels)
	for i := range streams {
		streams[i] = cudatest.NewStream()
	}
	for round := range rounds {
		for i, s := range streams {
			r := &device.Reduction{Type: datatype.Uint8, Blocks: words + device.Address(64+8*i),
				Copies: []device.Copy{{Dst: unsafe.Add(b.at, (1+i)*room), Src: b.at, Count: int64(room)}},
				After:  []device.Store{{At: words, Value: 1, Counter: words + 8, Of: kernels}}}
			b.on(s, func() error { return driver.Reduce(r, s) })
		}
		b.on(b.stream, func() error {
			return driver.Words(b.stream, []device.Word{{At: words, Value: 1, Wait: 1}, {At: words}})
		})
		if rc := cudatest.Sync(b.stream); rc != 0 {
			t.Fatalf("round %d: the stream ends with error %d", round, rc)
		}
		got := make([]byte, len(b.host))
		cudatest.Read(got, b.at)
		for i := range kernels {
			if string(got[(1+i)*room:][:room]) != string(got[:room]) {
				t.Fatalf("round %d: the word was written before kernel %d", round, i)
			}
		}
		if words := got[(kernels+1)*room:][:128]; !bytes.Equal(words, make([]byte, 128)) {
			t.Fatalf("round %d: words that are not 0: %v", round, words)
		}
		clear(b.host[room : (kernels+1)*room])
		cudatest.Write(b.at, b.host)
	}
}

func (b *bench) on(s device.Stream, put func() error) {
	b.t.Helper()
	if _, err := driver.Enter(s); err != nil {
		b.t.Fatal(err)
	}
	defer driver.Leave()
	if err := put(); err != nil {
		b.t.Fatal(err)
	}
}
