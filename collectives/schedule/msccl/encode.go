package msccl

import (
	"bytes"
	"encoding/xml"
	"fmt"

	"lightpath/collectives/schedule"
)

// Encode returns f as XML, the inverse of [Decode]. It does not validate.
func Encode(f *File) []byte {
	var out bytes.Buffer
	coll := f.Collective.String()
	if f.Custom {
		coll = "custom"
	}
	fmt.Fprintf(&out, `<algo name="%s" proto="%s" nchannels="%d" nchunksperloop="%d" ngpus="%d" coll="%s" inplace="%d"`,
		escape(f.Name), escape(f.Proto), f.Channels, f.ChunksPerLoop, f.Ranks(), coll, bit(f.InPlace))
	if f.Root >= 0 {
		fmt.Fprintf(&out, ` root="%d"`, f.Root)
	}
	if f.MinBytes > 0 {
		fmt.Fprintf(&out, ` minBytes="%d"`, f.MinBytes)
	}
	if f.MaxBytes > 0 {
		fmt.Fprintf(&out, ` maxBytes="%d"`, f.MaxBytes)
	}
	out.WriteString(">\n")
	for r := range f.GPUs {
		g := &f.GPUs[r]
		fmt.Fprintf(&out, "  <gpu id=\"%d\" i_chunks=\"%d\" o_chunks=\"%d\" s_chunks=\"%d\">\n",
			r, g.Chunks[schedule.Input], g.Chunks[schedule.Output], g.Chunks[schedule.Scratch])
		for t := range g.Blocks {
			b := &g.Blocks[t]
			fmt.Fprintf(&out, "    <tb id=\"%d\" send=\"%d\" recv=\"%d\" chan=\"%d\">\n", t, b.Send, b.Recv, b.Chan)
			for i := range b.Steps {
				st := &b.Steps[i]
				fmt.Fprintf(&out, `      <step s="%d" type="%v" srcbuf="%s" srcoff="%d" dstbuf="%s" dstoff="%d"`,
					i, st.Kind, bufferNames[st.Src.Buf], st.Src.Chunk, bufferNames[st.Dst.Buf], st.Dst.Chunk)
				fmt.Fprintf(&out, " cnt=\"%d\" depid=\"%d\" deps=\"%d\" hasdep=\"%d\"/>\n",
					st.Count, st.DepBlock, st.DepStep, bit(st.HasDep))
			}
			out.WriteString("    </tb>\n")
		}
		out.WriteString("  </gpu>\n")
	}
	out.WriteString("</algo>\n")
	return out.Bytes()
}

func bit(b bool) int {
	if b {
		return 1
	}
	return 0
}

func escape(text string) string {
	var out bytes.Buffer
	_ = xml.EscapeText(&out, []byte(text)) // a buffer does not fail
	return out.String()
}
