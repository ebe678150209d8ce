package status

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Source answers questions about a process. Safe for concurrent use.
type Source interface {
	// Status returns the facts that the process itself knows.
	Status() Process
	// Gather asks the other ranks of a communicator, by id, over its control network, for at most d. It returns the
	// answers that have come.
	Gather(id string, d time.Duration) []Rank
	// Dump returns the flight recorders of the process's ranks, one JSON document each.
	Dump() [][]byte
}

// The requests on a process's socket: one line, answered by one line of JSON, and for askDump one
// line per document.
const (
	askStatus = "status"
	askGather = "gather" // id milliseconds
	askDump   = "dump"
)

const (
	maxRequest = 256
	maxClients = 16
	// idleClient is how long a client may take to ask, and to read.
	idleClient = 10 * time.Second
	maxGather  = time.Minute
)

// Server answers on a socket of one process.
type Server struct {
	ln   *net.UnixListener
	path string
}

// Serve listens in the directory as process pid; tag makes the name unique among processes with the same number in
// other PID namespaces. Close ends it.
func Serve(dir string, pid int, tag string, src Source) (*Server, error) {
	if err := secureDir(dir); err != nil {
		return nil, err
	}
	// The socket gets its name only when the process listens. Otherwise a client in between would take it for the socket
	// of a killed process, and remove it.
	bound := filepath.Join(dir, fmt.Sprintf("%d-%s", pid, tag))
	path := bound + suffix
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: bound, Net: "unix"})
	if err == nil {
		ln.SetUnlinkOnClose(false)
		if err = os.Rename(bound, path); err != nil {
			_ = os.Remove(bound)
			_ = ln.Close()
		}
	}
	if err != nil {
		return nil, fmt.Errorf("status: %w", err)
	}
	s := &Server{ln, path}
	go accept(ln, func(conn net.Conn) { answer(conn, src) })
	return s, nil
}

// Close stops listening and removes the socket.
func (s *Server) Close() {
	_ = os.Remove(s.path) // a client may have been faster
	_ = s.ln.Close()
}

// accept calls serve for every connection, each on a goroutine, with a bounded number of goroutines.
func accept(ln net.Listener, serve func(net.Conn)) {
	slots := make(chan struct{}, maxClients)
	for {
		conn, err := ln.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // out of descriptors, say
			time.Sleep(10 * time.Millisecond)
			continue
		}
		slots <- struct{}{}
		go func() {
			defer func() { <-slots }()
			defer conn.Close()
			serve(conn)
		}()
	}
}

// answer serves one request.
func answer(conn net.Conn, src Source) {
	_ = conn.SetDeadline(time.Now().Add(idleClient))
	line, err := bufio.NewReader(io.LimitReader(conn, maxRequest)).ReadString('\n')
	if err != nil {
		return
	}
	ask, id, d, err := parseAsk(line)
	if err != nil {
		return // no client of Lightpath sends this
	}
	_ = conn.SetDeadline(time.Now().Add(d + idleClient))
	e := json.NewEncoder(conn)
	switch ask {
	case askStatus:
		_ = e.Encode(src.Status())
	case askGather:
		_ = e.Encode(src.Gather(id, d))
	case askDump:
		for _, text := range src.Dump() {
			_ = e.Encode(json.RawMessage(text))
		}
	}
}

var errAsk = errors.New("status: no such request")

// parseAsk reads a request.
func parseAsk(line string) (ask, id string, d time.Duration, err error) {
	words := strings.Fields(line)
	switch {
	case len(words) == 1 && (words[0] == askStatus || words[0] == askDump):
		return words[0], "", 0, nil
	case len(words) == 3 && words[0] == askGather:
		ms, err := strconv.Atoi(words[2])
		if d := time.Duration(ms) * time.Millisecond; err == nil && ms >= 0 && ms <= int(maxGather/time.Millisecond) {
			return askGather, words[1], d, nil
		}
	}
	return "", "", 0, errAsk
}

// ask sends a request to the process at path and decodes its answers into what next returns.
func ask(path, request string, d time.Duration, next func() any) error {
	conn, err := net.DialTimeout("unix", path, d)
	if err != nil {
		if errors.Is(err, syscall.ECONNREFUSED) {
			_ = os.Remove(path) // of a process that was killed
		}
		return err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(d))
	if _, err := conn.Write([]byte(request + "\n")); err != nil {
		return err
	}
	for dec := json.NewDecoder(conn); ; {
		if err := dec.Decode(next()); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}
