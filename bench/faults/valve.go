package faults

import (
	"net"
	"sync"
)

// valve passes connections on to a Unix socket. While it is shut, its clients wait for answers, as from a
// server that has stopped without notice.
type valve struct {
	l    net.Listener
	flow sync.RWMutex // write-locked while it is shut
	done sync.WaitGroup

	mu    sync.Mutex
	conns []net.Conn
}

func newValve(at, to string) (*valve, error) {
	l, err := net.Listen("unix", at)
	if err != nil {
		return nil, err
	}
	v := &valve{l: l}
	v.done.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("unix", to)
			if err != nil {
				in.Close()
				continue
			}
			v.mu.Lock()
			v.conns = append(v.conns, in, out)
			v.mu.Unlock()
			v.done.Go(func() { v.pass(in, out) })
			v.done.Go(func() { v.pass(out, in) })
		}
	})
	return v, nil
}

// pass copies until either end is closed, and closes both then.
func (v *valve) pass(from, to net.Conn) {
	defer from.Close()
	defer to.Close()
	b := make([]byte, 32<<10)
	for {
		n, err := from.Read(b)
		v.flow.RLock()
		_, lost := to.Write(b[:n])
		v.flow.RUnlock()
		if err != nil || lost != nil {
			return
		}
	}
}

func (v *valve) shut() { v.flow.Lock() }
func (v *valve) open() { v.flow.Unlock() }

// close ends all connections. The valve is open.
func (v *valve) close() error {
	err := v.l.Close()
	v.mu.Lock()
	for _, c := range v.conns {
		c.Close()
	}
	v.mu.Unlock()
	v.done.Wait()
	return err
}
