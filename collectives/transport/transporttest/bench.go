package transporttest

import (
	"fmt"
	"runtime"
	"testing"

	"lightpath/collectives/transport"
	"lightpath/collectives/wire"
)

// spins is the number of polls after which a benchmark yields to another goroutine.
const spins = 200

// Benchmark measures the latency of 8 bytes (half a round trip) and the bandwidth of large messages in one direction,
// between two ranks on one plane.
func (c Config) Benchmark(b *testing.B) {
	b.Run("latency-8B", func(b *testing.B) {
		e := c.Open(b, 2, 1)
		defer closeAll(e)
		var word [8]byte
		h := new(wire.Header)
		done := make(chan struct{})
		go func() {
			defer close(done)
			var word [8]byte
			h := new(wire.Header)
			for range b.N {
				c.pull(b, e[1], 0, word[:])
				c.push(b, e[1], h, 1, 0, word[:])
			}
		}()
		b.ReportAllocs()
		b.ResetTimer()
		for range b.N {
			c.push(b, e[0], h, 0, 1, word[:])
			c.pull(b, e[0], 1, word[:])
		}
		<-done
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(2*b.N), "ns/half-trip")
	})
	for _, size := range []int{64 << 10, 1 << 20, 16 << 20} {
		b.Run(fmt.Sprintf("bandwidth-%dKiB", size>>10), func(b *testing.B) {
			e := c.Open(b, 2, 1)
			defer closeAll(e)
			out, in := make([]byte, size), make([]byte, size)
			go func() {
				h := new(wire.Header)
				for range b.N {
					c.push(b, e[0], h, 0, 1, out)
				}
			}()
			b.SetBytes(int64(size))
			b.ReportAllocs()
			b.ResetTimer()
			for range b.N {
				c.pull(b, e[1], 0, in)
			}
		})
	}
}

func closeAll(endpoints []transport.Endpoint) {
	for _, e := range endpoints {
		_ = e.Close()
	}
}

func (c Config) push(b *testing.B, e transport.Endpoint, h *wire.Header, src, dst int, payload []byte) {
	p := e.Planes()[0]
	for sent, idle := 0, 0; sent < len(payload); idle++ {
		*h = c.header(0, src, dst, uint64(sent))
		n, err := p.TrySend(h, payload[sent:])
		if err != nil {
			b.Error(err)
			return
		}
		if sent += n; n == 0 && idle%spins == spins-1 {
			runtime.Gosched()
		}
	}
}

func (c Config) pull(b *testing.B, e transport.Endpoint, src int, into []byte) {
	p := e.Planes()[0]
	for got, idle := 0, 0; got < len(into); idle++ {
		h, data, err := p.Peek(src)
		if err != nil {
			b.Error(err)
			return
		}
		if h == nil {
			if idle%spins == spins-1 {
				runtime.Gosched()
			}
			continue
		}
		got += copy(into[got:], data)
		p.Release(src)
	}
}
