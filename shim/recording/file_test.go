package recording

import (
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"lightpath/internal/require"
	"lightpath/shim/calls"
)

const (
	testComms = 3
	testCalls = 8
)

// encode writes a file as the recorder does, with small tables.
func encode(f *File) []byte {
	le := binary.LittleEndian
	data := make([]byte, headerSize+testComms*commSize+testCalls*callSize)
	copy(data, magic)
	for at, v := range map[int]uint32{8: version, 12: testComms, 16: testCalls, 20: uint32(f.PID), 24: uint32(f.Launcher),
		28: uint32(len(f.Comms))} {
		le.PutUint32(data[at:], v)
	}
	for at, v := range map[int]uint64{32: 1000, 40: uint64(1000 + f.Offset), 48: uint64(len(f.Calls)), 56: 1,
		64: f.Unknown} {
		le.PutUint64(data[at:], v)
	}
	copy(data[72:], f.Host)
	copy(data[136:], f.Library)
	for i, c := range f.Comms {
		at := data[headerSize+i*commSize:]
		le.PutUint64(at, c.ID)
		for k, v := range []int{c.Ranks, c.Rank, c.Parent + 1} {
			le.PutUint32(at[8+4*k:], uint32(v))
		}
	}
	for n, c := range f.Calls {
		at := data[headerSize+testComms*commSize+n%testCalls*callSize:]
		for k, v := range []uint64{uint64(n + 1), uint64(c.Begin), uint64(c.End), c.Count, c.Number, c.Group} {
			le.PutUint64(at[8*k:], v)
		}
		le.PutUint32(at[48:], uint32(c.Peer))
		le.PutUint16(at[52:], uint16(c.Comm))
		at[54], at[55] = byte(c.Kind), byte(c.TypeBytes)
		if c.GroupEnd {
			at[54] = groupEnd
		}
		if c.Stream {
			at[57] = 1
		}
	}
	return data
}

func example() *File {
	return &File{Host: "h", PID: 7, Launcher: 1, Offset: 1e6, Library: "/lib/nccl", Unknown: 2, Written: 4,
		Comms: []Comm{{ID: 5, Ranks: 4, Rank: 1, Parent: -1}, {ID: 6, Ranks: 2, Rank: 0, Parent: 0}},
		Calls: []Call{
			{Kind: calls.AllReduce, Begin: 10, End: 20, Count: 100, TypeBytes: 4, Stream: true},
			{Kind: calls.Send, Count: 3, TypeBytes: 8, Peer: 1, Comm: 1, Group: 1, Number: 9},
			{Kind: groupEnd, GroupEnd: true, Begin: 30, End: 40, Group: 1},
			{Kind: calls.Broadcast, Begin: 50, End: 60, Count: 1, TypeBytes: 1, Peer: 3, Number: 1}}}
}

func TestDecode(t *testing.T) {
	want := example()
	got, err := Decode(encode(want))
	require.NoError(t, err)
	if !slices.Equal(got.Calls, want.Calls) || !slices.Equal(got.Comms, want.Comms) || got.Host != "h" || got.PID != 7 ||
		got.Offset != 1e6 || got.Launcher != 1 || got.Library != want.Library || got.Unknown != 2 || got.Written != 4 {
		t.Errorf("%+v\n%+v", got, want)
	}
	// A full ring has the last calls. One that a killed process had begun to write is not there.
	for len(want.Calls) < 11 {
		want.Calls = append(want.Calls, want.Calls[0])
	}
	data := encode(want)
	binary.LittleEndian.PutUint64(data[headerSize+testComms*commSize+2*callSize:], 0) // call 11
	got, err = Decode(data)
	require.NoError(t, err)
	if !slices.Equal(got.Calls, want.Calls[3:10]) || got.Written != 11 {
		t.Errorf("%+v", got)
	}
}

func TestRefused(t *testing.T) {
	for _, c := range []struct {
		change func(f *File)
		says   string
	}{
		{func(f *File) { f.Comms[0].Ranks = 5000 }, "comms[0].ranks: 5000 is outside 0..4096"},
		{func(f *File) { f.Comms[1].Rank = 2 }, "comms[1].rank: 2 of 2 ranks"},
		{func(f *File) { f.Comms[1].Parent = 1 }, "comms[1].parent: 2 is not before it"},
		{func(f *File) { f.Launcher = -2 }, "launcher_rank: -2 is negative"},
		{func(f *File) { f.Offset = -2000 }, "realtime: -1000 is outside"},
		{func(f *File) { f.Calls[0].Kind = 10 }, "calls[0].kind: 10 is unknown"},
		{func(f *File) { f.Calls[0].Comm = 2 }, "calls[0].comm: 2 of 2"},
		{func(f *File) { f.Comms[1].Ranks = 0 }, "calls[1].comm: communicator 1 has no ranks"},
		{func(f *File) { f.Calls[0].TypeBytes = 3 }, "calls[0].type_bytes: 3"},
		{func(f *File) { f.Calls[0].Count = math.MaxUint64 }, "calls[0].count: "},
		{func(f *File) { f.Calls[0].End = 9 }, "calls[0].end: 9, and begin is 10"},
		{func(f *File) { f.Calls[0].Begin = -1 }, "calls[0].begin: -1"},
		{func(f *File) { f.Calls[1].End = 7 }, "calls[1].end: 7"},
		{func(f *File) { f.Calls[1].Peer = 2 }, "calls[1].peer: 2 of 2 ranks"},
		{func(f *File) { f.Calls[2].Group = 0 }, "calls[2].group: 0 is no group"},
	} {
		f := example()
		c.change(f)
		_, err := Decode(encode(f))
		if !errors.Is(err, ErrFile) || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v, want %q", err, c.says)
		}
	}
	whole := encode(example())
	for _, c := range []struct {
		at, v int
		says  string
	}{{0, 0, "magic"}, {8, 2, "version: is 2, not 1"}, {12, 1 << 20, "comm_room"}, {16, 0, "call_room"}, {16, 9, "length"},
		{28, 4, "comms: 4 is above comm_room, 3"}, {52, math.MaxInt32, "calls: "}, {36, math.MaxInt32, "monotonic"}} {
		data := slices.Clone(whole)
		binary.LittleEndian.PutUint32(data[c.at:], uint32(c.v))
		if _, err := Decode(data); !errors.Is(err, ErrFile) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%v, want %q", err, c.says)
		}
	}
	for _, n := range []int{0, 10, len(whole) - 1} {
		if _, err := Decode(whole[:n]); !errors.Is(err, ErrFile) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
}

// FuzzDecode: nothing ends the program, and what is accepted can be merged.
func FuzzDecode(f *testing.F) {
	f.Add(encode(example()))
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := Decode(data)
		if err != nil {
			if file != nil || !errors.Is(err, ErrFile) {
				t.Fatalf("%v with %v", err, file)
			}
			return
		}
		other := *file
		if m, err := Merge([]*File{file, &other}); err == nil {
			require.NoError(t, m.Trace.Validate())
		}
	})
}
