package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"testing"
)

func random(rng *rand.Rand) Header {
	return Header{
		Comm: rng.Uint64(), Op: rng.Uint64(), Offset: rng.Uint64(),
		Step: rng.Uint32(), Epoch: rng.Uint32(), Signature: rng.Uint32(), Length: rng.Uint32(),
		Src: uint16(rng.Uint32()), Dst: uint16(rng.Uint32()), Plane: uint16(rng.Uint32()), Flags: uint16(rng.Uint32()),
	}
}

func TestRoundTrip(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 1000 {
		want := random(rng)
		var b [HeaderSize]byte
		Encode(&want, b[:])
		var got Header
		if err := Decode(b[:], &got); err != nil || got != want {
			t.Fatalf("encoded %+v\ndecoded %+v, %v", want, got, err)
		}
	}
}

// TestLayout compares an encoded header with fixed bytes, because other programs read headers from the frame log.
func TestLayout(t *testing.T) {
	h := Header{
		Comm: 0x0807060504030201, Op: 0x1817161514131211, Offset: 0x2827262524232221,
		Step: 0x34333231, Epoch: 0x44434241, Signature: 0x54535251, Length: 0x64636261,
		Src: 0x7271, Dst: 0x8281, Plane: 0x9291, Flags: 0xa2a1,
	}
	var b [HeaderSize]byte
	Encode(&h, b[:])
	want := []byte("LPTF\x01\x00\xa1\xa2\x01\x02\x03\x04\x05\x06\x07\x08\x11\x12\x13\x14\x15\x16\x17\x18" +
		"\x21\x22\x23\x24\x25\x26\x27\x28\x31\x32\x33\x34\x41\x42\x43\x44\x51\x52\x53\x54\x61\x62\x63\x64" +
		"\x71\x72\x81\x82\x91\x92\x00\x00")
	if !bytes.Equal(b[:56], want) {
		t.Errorf("got  % x\nwant % x", b[:56], want)
	}
}

// TestDecodeDetectsDamage flips every bit and exchanges every pair of neighbouring words.
func TestDecodeDetectsDamage(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 20 {
		h := random(rng)
		var b [HeaderSize]byte
		Encode(&h, b[:])
		keep := h
		for bit := range HeaderSize * 8 {
			b[bit/8] ^= 1 << (bit % 8)
			if err := Decode(b[:], &h); err == nil || h != keep {
				t.Fatalf("bit %d flipped: err %v, header changed %v", bit, err, h != keep)
			}
			b[bit/8] ^= 1 << (bit % 8)
		}
		for word := 8; word < 56; word += 8 {
			swapped := b
			copy(swapped[word:], b[word-8:word])
			copy(swapped[word-8:], b[word:word+8])
			if err := Decode(swapped[:], &h); err == nil {
				t.Fatalf("words %d and %d exchanged: accepted", word/8-1, word/8)
			}
		}
	}
}

func TestDecodeErrors(t *testing.T) {
	var good [HeaderSize]byte
	Encode(&Header{}, good[:])
	for _, c := range []struct {
		name string
		edit func([]byte) []byte
		want error
	}{
		{"empty", func([]byte) []byte { return nil }, ErrShort},
		{"short", func(b []byte) []byte { return b[:HeaderSize-1] }, ErrShort},
		{"magic", func(b []byte) []byte { b[0]++; return b }, ErrMagic},
		{"version", func(b []byte) []byte { b[4]++; return b }, ErrVersion},
		{"payload field", func(b []byte) []byte { b[44]++; return b }, ErrChecksum},
		{"reserved", func(b []byte) []byte {
			b[atReserved]++
			binary.LittleEndian.PutUint64(b[atChecksum:], checksum(b))
			return b
		}, ErrReserved},
		{"checksum", func(b []byte) []byte { b[63]++; return b }, ErrChecksum},
	} {
		b := good
		var h Header
		if err := Decode(c.edit(b[:]), &h); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
}

// TestDecodeFrame decodes frames whose payload is as long as the header says, or is not.
func TestDecodeFrame(t *testing.T) {
	b := make([]byte, HeaderSize)
	Encode(&Header{Length: 2}, b)
	b = append(b, "payload"...)
	for n := range len(b) + 1 {
		var h Header
		payload, err := DecodeFrame(b[:n], &h)
		if (err == nil) != (n == HeaderSize+2) || err == nil && string(payload) != "pa" {
			t.Errorf("%d bytes: %q, %v", n, payload, err)
		}
	}
}

func TestEncodeAndDecodeDoNotAllocate(t *testing.T) {
	var b [HeaderSize]byte
	var out Header
	h := random(rand.New(rand.NewPCG(5, 6)))
	if n := testing.AllocsPerRun(100, func() {
		Encode(&h, b[:])
		if Decode(b[:], &out) != nil {
			panic("round trip")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// FuzzWire decodes arbitrary bytes. Decode returns a header or an error, and Encode restores the same bytes.
func FuzzWire(f *testing.F) {
	var b [HeaderSize]byte
	Encode(&Header{Comm: 1, Length: 2, Src: 3}, b[:])
	f.Add(b[:])
	f.Add(b[:10])
	f.Add(make([]byte, HeaderSize))
	f.Fuzz(func(t *testing.T, in []byte) {
		var h Header
		if err := Decode(in, &h); err != nil {
			if h != (Header{}) {
				t.Fatalf("Decode returned a header with the error %v", err)
			}
			return
		}
		var out [HeaderSize]byte
		Encode(&h, out[:])
		if !bytes.Equal(out[:], in[:HeaderSize]) {
			t.Fatalf("decoded % x\nencoded % x", in, out)
		}
	})
}

func BenchmarkEncodeDecode(b *testing.B) {
	var buf [HeaderSize]byte
	h := random(rand.New(rand.NewPCG(7, 8)))
	b.ReportAllocs()
	for b.Loop() {
		Encode(&h, buf[:])
		if err := Decode(buf[:], &h); err != nil {
			b.Fatal(err)
		}
	}
}
