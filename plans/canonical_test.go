package plans

import (
	"bytes"
	"math"
	"testing"

	"github.com/gowebpki/jcs"
)

// FuzzCanonical compares with an independent implementation of RFC 8785, on texts that
// both accept (that one takes duplicate keys, and surrogates that are alone).
func FuzzCanonical(f *testing.F) {
	for _, name := range []string{"swot-fig5", "demand", "joint"} {
		f.Add(digestInput(readTestdata(f, name+".plan.json"), readTestdata(f, name+".problem.json")))
	}
	f.Add([]byte(`{"b":[1e-7,1E21,-0,0.1,5e-324,123456789012345680000,1e22],"a":"\u0000\b\t\n\u000b\f\r\"\\\/<>&\u20ac\ud83d\ude00","\ufb33":1,"\ud83d\ude00":2,"":null}`))
	f.Add([]byte(`[true,false,null,{},[],""," "]`))
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := canonical(data)
		if err != nil || bytes.Contains(got, []byte("\ufffd")) {
			return
		}
		if data = bytes.TrimSpace(data); data[0] != '{' && data[0] != '[' {
			return // the library takes no other root
		}
		want, err := jcs.Transform(data)
		if err != nil {
			return
		}
		if !bytes.Equal(got, want) {
			t.Fatalf("%q:\n got  %s\n want %s", data, got, want)
		}
	})
}

func TestCanonicalNumbers(t *testing.T) {
	// From RFC 8785, appendix B.
	for bits, want := range map[uint64]string{
		0x0000000000000000: "0", 0x8000000000000000: "0", 0x0000000000000001: "5e-324", 0x7fefffffffffffff: "1.7976931348623157e+308",
		0x4340000000000000: "9007199254740992", 0x4430000000000000: "295147905179352830000", 0x44b52d02c7e14af5: "9.999999999999997e+22",
		0x44b52d02c7e14af6: "1e+23", 0x44b52d02c7e14af7: "1.0000000000000001e+23", 0x444b1ae4d6e2ef4e: "999999999999999700000",
		0x444b1ae4d6e2ef50: "1e+21", 0x3eb0c6f7a0b5ed8c: "9.999999999999997e-7", 0x3eb0c6f7a0b5ed8d: "0.000001",
		0x41b3de4355555553: "333333333.3333332", 0x3e7ad7f29abcaf48: "1e-7",
	} {
		if got := string(appendCanonicalNumber(nil, math.Float64frombits(bits))); got != want {
			t.Errorf("%016x: %s, want %s", bits, got, want)
		}
	}
}
