package programtest

import (
	"encoding/binary"
	"math/rand/v2"

	"lightpath/collectives/schedule"
)

// Case is a call of all ranks over uint32 elements, added mod 2^32, with its expected result.
type Case struct {
	Schedule *schedule.Schedule
	Count    int64
	In       [][]byte
	Out      []int    // bytes of Output per rank
	Want     [][]byte // nil where a rank has no output
}

// NewCase returns a call with random inputs. scale multiplies the result of a collective that reduces.
func NewCase(s *schedule.Schedule, count int64, scale uint32, seed uint64) *Case {
	c := &Case{Schedule: s, Count: count}
	rng := rand.New(rand.NewPCG(seed, 2))
	n, b := s.Ranks, int(count)*4
	for r := 0; r < n; r++ {
		in := make([]byte, s.BlocksAt(r, schedule.Input)*b)
		for i := range in {
			in[i] = byte(rng.Uint32())
		}
		c.In = append(c.In, in)
		c.Out = append(c.Out, s.BlocksAt(r, schedule.Output)*b)
	}
	block := func(r, i int) []byte { return c.In[r][i*b : (i+1)*b] }
	sum := func(i int) []byte {
		out := make([]byte, b)
		for r := 0; r < n; r++ {
			AddInto(out, block(r, i))
		}
		for i := 0; i < len(out); i += 4 {
			binary.LittleEndian.PutUint32(out[i:], binary.LittleEndian.Uint32(out[i:])*scale)
		}
		return out
	}
	var all []byte
	for r := 0; r < n && s.Collective != schedule.Broadcast && s.Collective != schedule.Scatter; r++ {
		all = append(all, block(r, 0)...)
	}
	for r := 0; r < n; r++ {
		var want []byte
		switch s.Collective {
		case schedule.AllReduce:
			want = sum(0)
		case schedule.Broadcast:
			want = block(s.Root, 0)
		case schedule.Reduce:
			if r == s.Root {
				want = sum(0)
			}
		case schedule.AllGather:
			want = all
		case schedule.Gather:
			if r == s.Root {
				want = all
			}
		case schedule.ReduceScatter:
			want = sum(r)
		case schedule.Scatter:
			want = block(s.Root, r)
		case schedule.AllToAll:
			for q := 0; q < n; q++ {
				want = append(want, block(q, r)...)
			}
		case schedule.SendRecv:
			want = block((r+n-1)%n, 0)
		}
		c.Want = append(c.Want, want)
	}
	return c
}

// Buffers returns new Input and Output buffers of a rank. They overlap if the call is in place.
func (c *Case) Buffers(r int, inPlace bool) (in, out []byte) {
	in, out = append([]byte(nil), c.In[r]...), make([]byte, c.Out[r])
	ib, ob, blocks := c.Schedule.InPlace(r)
	if !inPlace || blocks == 0 {
		return in, out
	}
	block := int(c.Count) * 4
	if len(out) > len(in) {
		copy(out[ob*block:], in)
		return out[ob*block : ob*block+len(in)], out
	}
	return in, in[ib*block : ib*block+len(out)]
}

// AddInto is the reduction of all cases.
func AddInto(dst, src []byte) {
	for i := 0; i+4 <= len(src); i += 4 {
		binary.LittleEndian.PutUint32(dst[i:], binary.LittleEndian.Uint32(dst[i:])+binary.LittleEndian.Uint32(src[i:]))
	}
}
