package msccl_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"lightpath/collectives/schedule"
	"lightpath/collectives/schedule/msccl"
	"lightpath/internal/require"
)

// exchange is a file of two GPUs, each of which sends its chunk to the other.
const exchange = `<algo name="x" proto="LL" nchannels="1" nchunksperloop="2" ngpus="2" coll="allgather" inplace="1">
  <gpu id="0" i_chunks="0" o_chunks="2" s_chunks="0">
    <tb id="0" send="1" recv="1" chan="0">
      <step s="0" type="s" srcbuf="o" srcoff="0" dstbuf="o" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="0"/>
      <step s="1" type="r" srcbuf="o" srcoff="1" dstbuf="o" dstoff="1" cnt="1" depid="-1" deps="-1" hasdep="0"/>
    </tb>
    <tb id="1" send="-1" recv="-1" chan="0"/>
  </gpu>
  <gpu id="1" i_chunks="0" o_chunks="2" s_chunks="0">
    <tb id="0" send="0" recv="0" chan="0">
      <step s="0" type="s" srcbuf="o" srcoff="1" dstbuf="o" dstoff="1" cnt="1" depid="-1" deps="-1" hasdep="0"/>
      <step s="1" type="r" srcbuf="o" srcoff="0" dstbuf="o" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="0"/>
    </tb>
  </gpu>
</algo>
`

// TestFileErrors checks that the error for a wrong file is one line that names the gpu, tb, step and attribute.
func TestFileErrors(t *testing.T) {
	if _, err := decode(t, []byte(exchange)).Schedule(0); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name, old, with string
		err             error
		says            string
	}{
		{"empty", exchange, "", msccl.ErrFormat, "no <algo>"},
		{"not XML", exchange, "algo", msccl.ErrFormat, "line 1"},
		{"other element", exchange, "<plan/>", msccl.ErrFormat, "no <algo>"},
		{"cut", "</gpu>\n</algo>", "</gpu>", msccl.ErrFormat, "EOF"},
		{"trailing text", "</algo>\n", "</algo> and more", msccl.ErrFormat, "after </algo>"},
		{"trailing element", "</algo>\n", "</algo><algo/>", msccl.ErrFormat, "second element"},
		{"document type", "<algo", "<!DOCTYPE x><algo", msccl.ErrFormat, "document type"},
		{"text inside", "<gpu id=\"0\"", "x<gpu id=\"0\"", msccl.ErrFormat, `line 2: text "x"`},
		{"unknown element", `<tb id="1" send="-1" recv="-1" chan="0"/>`, "<block/>", msccl.ErrFormat,
			"gpu 0: element <block>, want <tb>"},
		{"step with content", `hasdep="0"/>`, `hasdep="0"><x/></step>`, msccl.ErrFormat, "<x>"},
		{"collective", `coll="allgather"`, `coll="sort"`, msccl.ErrFormat, `coll: "sort"`},
		{"custom", `coll="allgather"`, `coll="custom"`, msccl.ErrMismatch, "coll: custom"},
		{"collective missing", `coll="allgather"`, ``, msccl.ErrFormat, "coll: missing"},
		{"twice", `proto="LL"`, `proto="LL" proto="LL"`, msccl.ErrFormat, "proto"},
		{"in place", `inplace="1"`, `inplace="yes"`, msccl.ErrFormat, `inplace: "yes"`},
		{"more ranks", `ngpus="2"`, `ngpus="3"`, msccl.ErrFormat, "gpu 2: missing"},
		{"gpu missing", `ngpus="2" coll="allgather"`, `ngpus="3" coll="allreduce"`, msccl.ErrFormat, "gpu 2: missing"},
		{"too many ranks", `ngpus="2"`, `ngpus="5000"`, msccl.ErrFormat, "ngpus"},
		{"gpu out of range", `<gpu id="1"`, `<gpu id="2"`, msccl.ErrFormat, `id: "2"`},
		{"gpu twice", `<gpu id="1"`, `<gpu id="0"`, msccl.ErrFormat, "gpu 0: defined twice"},
		{"tb twice", `<tb id="1"`, `<tb id="0"`, msccl.ErrFormat, "gpu 0: tb 0: defined twice"},
		{"tb missing", `<tb id="1"`, `<tb id="2"`, msccl.ErrFormat, "gpu 0: tb 1: missing"},
		{"chunks per loop", `nchunksperloop="2"`, `nchunksperloop="3"`, msccl.ErrFormat, "nchunksperloop"},
		{"huge", `s_chunks="0"`, `s_chunks="999999999"`, msccl.ErrFormat, "gpu 0: s_chunks"},
		{"too large output", `o_chunks="2"`, `o_chunks="3"`, msccl.ErrFormat, "gpu 0: o_chunks: 3"},
		{"peer itself", `<tb id="0" send="1"`, `<tb id="0" send="0"`, msccl.ErrFormat, "gpu 0 tb 0: send"},
		{"peer out of range", `<tb id="0" send="1"`, `<tb id="0" send="7"`, msccl.ErrFormat,
			"gpu 0 tb 0: send: gpu 7 is no peer"},
		{"peer twice", `<tb id="1" send="-1"`, `<tb id="1" send="1"`, msccl.ErrFormat,
			"gpu 0 tb 1: send: tb 0 already has gpu 1 on channel 0"},
		{"channel", `recv="1" chan="0"`, `recv="1" chan="4"`, msccl.ErrFormat, "gpu 0 tb 0: chan: 4"},
		{"no send peer", `<tb id="0" send="1"`, `<tb id="0" send="-1"`, msccl.ErrFormat, "gpu 0 tb 0 step 0: type: s"},
		{"no receive peer", `send="1" recv="1"`, `send="1" recv="-1"`, msccl.ErrFormat, "gpu 0 tb 0 step 1: type: r"},
		{"type", `type="r"`, `type="rr"`, msccl.ErrFormat, `gpu 0: tb 0: step 1: type: "rr"`},
		{"reduction", `type="r"`, `type="rrc"`, msccl.ErrFormat, "gpu 0 tb 0 step 1: type: rrc in allgather"},
		{"step number", `<step s="1"`, `<step s="2"`, msccl.ErrFormat, "tb 0: step 1: s"},
		{"chunk", `srcoff="0"`, `srcoff="2"`, msccl.ErrFormat, "gpu 0 tb 0 step 0: srcoff: chunks 2 to 2 of 2"},
		{"count", `cnt="1"`, `cnt="3"`, msccl.ErrFormat, "gpu 0 tb 0 step 0: srcoff"},
		{"no chunks", `cnt="1"`, `cnt="0"`, msccl.ErrFormat, "gpu 0 tb 0 step 0: cnt"},
		{"buffer", `srcbuf="o"`, `srcbuf="x"`, msccl.ErrFormat, `srcbuf: "x"`},
		{"number", `cnt="1"`, `cnt="1e9"`, msccl.ErrFormat, `step 0: cnt: "1e9"`},
		{"no such dependency", `depid="-1" deps="-1"`, `depid="1" deps="0"`, msccl.ErrFormat,
			"gpu 0 tb 0 step 0: depid, deps: no tb 1 step 0"},
		{"dependency without hasdep", `depid="-1" deps="-1"`, `depid="0" deps="1"`, msccl.ErrFormat, `hasdep="0"`},
		{"never sent", `<step s="0" type="s" srcbuf="o" srcoff="1" dstbuf="o" dstoff="1"`,
			`<step s="0" type="nop" srcbuf="o" srcoff="1" dstbuf="o" dstoff="1"`,
			msccl.ErrFormat, "gpu 0 tb 0 step 1 receives from gpu 1 on channel 0"},
		{"never received", `<step s="1" type="r" srcbuf="o" srcoff="0" dstbuf="o" dstoff="0"`,
			`<step s="1" type="nop" srcbuf="o" srcoff="0" dstbuf="o" dstoff="0"`,
			msccl.ErrFormat, "gpu 0 tb 0 step 0 sends to gpu 1 on channel 0"},
		{"overwritten", `srcoff="0" dstbuf="o" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="0"/>
    </tb>
  </gpu>
</algo>`, `srcoff="0" dstbuf="o" dstoff="1" cnt="1" depid="-1" deps="-1" hasdep="0"/>
    </tb>
  </gpu>
</algo>`, schedule.ErrIncorrect, "rank 1 output chunk"},
	} {
		text := strings.Replace(exchange, tc.old, tc.with, 1)
		if text == exchange {
			t.Fatalf("%s: the file did not change", tc.name)
		}
		f, err := msccl.Decode([]byte(text))
		if err == nil {
			_, err = f.Schedule(0)
		}
		if !errors.Is(err, tc.err) || !strings.Contains(fmt.Sprint(err), tc.says) ||
			strings.Contains(fmt.Sprint(err), "\n") {
			t.Errorf("%s: %v, want %q", tc.name, err, tc.says)
		}
	}
}

// TestDeadlock checks the error for two GPUs that both receive before they send.
func TestDeadlock(t *testing.T) {
	text := strings.NewReplacer(
		`s="0" type="s" srcbuf="o" srcoff="0" dstbuf="o" dstoff="0"`,
		`s="0" type="r" srcbuf="o" srcoff="1" dstbuf="o" dstoff="1"`,
		`s="1" type="r" srcbuf="o" srcoff="1" dstbuf="o" dstoff="1"`,
		`s="1" type="s" srcbuf="o" srcoff="0" dstbuf="o" dstoff="0"`,
		`s="0" type="s" srcbuf="o" srcoff="1" dstbuf="o" dstoff="1"`,
		`s="0" type="r" srcbuf="o" srcoff="0" dstbuf="o" dstoff="0"`,
		`s="1" type="r" srcbuf="o" srcoff="0" dstbuf="o" dstoff="0"`,
		`s="1" type="s" srcbuf="o" srcoff="1" dstbuf="o" dstoff="1"`,
	).Replace(exchange)
	_, err := decode(t, []byte(text)).Schedule(0)
	const cycle = "gpu 0 tb 0 step 0, which waits for gpu 1 tb 0 step 1, which waits for gpu 1 tb 0 step 0"
	if !errors.Is(err, msccl.ErrDeadlock) || !strings.Contains(err.Error(), cycle) {
		t.Errorf("%v", err)
	}
}

// TestRoot checks that a file with a root is rejected for other roots.
func TestRoot(t *testing.T) {
	s, err := schedule.Build(schedule.Broadcast, "binomial", 4, 2)
	require.NoError(t, err)
	f, err := msccl.Export(s, false)
	require.NoError(t, err)
	f = decode(t, msccl.Encode(f))
	if _, err := f.Schedule(1); !errors.Is(err, msccl.ErrMismatch) {
		t.Error(err)
	}
	if _, err := f.Schedule(7); err == nil {
		t.Error("root 7 of 4 ranks: accepted")
	}
	f.Root = -1
	if _, err := f.Schedule(1); !errors.Is(err, schedule.ErrIncorrect) {
		t.Error(err)
	}
}

// TestCustom checks that a custom file is accepted only for the collective that it computes.
func TestCustom(t *testing.T) {
	f := decode(t, []byte(strings.Replace(exchange, `coll="allgather"`, `coll="custom"`, 1)))
	if _, err := f.For(schedule.AllGather, 2, 0); err != nil {
		t.Error(err)
	}
	for c, want := range map[schedule.Collective]error{
		schedule.AllToAll: schedule.ErrIncorrect, schedule.AllReduce: schedule.ErrIncorrect,
		schedule.ReduceScatter: msccl.ErrFormat,
	} {
		if _, err := f.For(c, 2, 0); !errors.Is(err, want) {
			t.Errorf("%v: %v", c, err)
		}
	}
	if again := decode(t, msccl.Encode(f)); !again.Custom || again.Identity() != f.Identity() {
		t.Error("encoded and decoded, the file is not custom")
	}
}

func TestExportErrors(t *testing.T) {
	s, err := schedule.Build(schedule.AllToAll, "pairwise", 4, 0, schedule.Disjoint)
	require.NoError(t, err)
	if _, err := msccl.Export(s, true); !errors.Is(err, msccl.ErrExport) {
		t.Error(err)
	}
	s.Steps = s.Steps[1:]
	if _, err := msccl.Export(s, false); !errors.Is(err, schedule.ErrIncorrect) {
		t.Error(err)
	}
}

// FuzzDecode decodes arbitrary texts. Encoding and decoding a file must succeed, and its schedule, if any, must be
// correct.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(exchange))
	for _, name := range []string{
		"allreduce-ring-3", "alltoall-allpairs-3-2inst", "reducescatter-ring-4-apart", "allreduce-1step-4",
		"allreduce-hierarchical-2x2",
	} {
		text, err := os.ReadFile("testdata/" + name + ".xml")
		require.NoError(f, err)
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		file, err := msccl.Decode(text)
		if err != nil {
			if !errors.Is(err, msccl.ErrFormat) {
				t.Fatalf("%v, want ErrFormat", err)
			}
			return
		}
		if again, err := msccl.Decode(msccl.Encode(file)); err != nil || len(again.GPUs) != len(file.GPUs) {
			t.Fatalf("encoded and decoded: %v", err)
		}
		if file.Ranks()*file.ChunksPerLoop > 1000 {
			return // the proof takes too long
		}
		s, err := file.Schedule(0)
		if err == nil {
			err = schedule.Verify(s)
			if err != nil {
				t.Fatalf("Schedule returned an incorrect schedule: %v", err)
			}
		}
	})
}
