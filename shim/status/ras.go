package status

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"strconv"
	"strings"
	"time"
)

// The text protocol of NCCL's RAS, which its client (ncclras) and other tools speak: lines, in upper
// or lower case. The client introduces itself with CLIENT PROTOCOL n; TIMEOUT seconds and SET FORMAT
// text|json prepare the one STATUS or VERBOSE STATUS, after whose answer the server closes.

// DefaultRASAddress is the address that NCCL's tools use by default.
const DefaultRASAddress = "localhost:28028"

// rasProtocol is the implemented version of the protocol.
const rasProtocol = 2

// maxCommand bounds a line of a client.
const maxCommand = 1024

// maxRASTimeout bounds what a client may ask for.
const maxRASTimeout = 10 * time.Minute

// command is a line of the protocol.
type command struct {
	kind    commandKind
	timeout time.Duration // setTimeout
	json    bool          // setFormat
	refusal string        // refused: the answer
}

type commandKind int

const (
	refused commandKind = iota
	greeting
	setTimeout
	setFormat
	statusOf
	verboseStatus
)

// parseCommand reads a line without its end.
func parseCommand(line string) command {
	lower := strings.ToLower(line)
	after := func(prefix string) (string, bool) {
		if strings.HasPrefix(lower, prefix) {
			return line[len(prefix):], true
		}
		return "", false
	}
	switch lower {
	case "status":
		return command{kind: statusOf}
	case "verbose status":
		return command{kind: verboseStatus}
	}
	if _, ok := after("client protocol "); ok {
		return command{kind: greeting}
	}
	if arg, ok := after("timeout "); ok {
		s, err := strconv.ParseFloat(arg, 64)
		if err != nil || math.IsNaN(s) || math.IsInf(s, 0) || s < 0 {
			return command{refusal: "ERROR: Invalid timeout value " + arg}
		}
		d := maxRASTimeout // 0 asks for none
		if s > 0 && s < maxRASTimeout.Seconds() {
			d = time.Duration(s * float64(time.Second))
		}
		return command{kind: setTimeout, timeout: d}
	}
	if arg, ok := after("set format "); ok {
		switch strings.ToLower(arg) {
		case "text", "json":
			return command{kind: setFormat, json: strings.EqualFold(arg, "json")}
		}
		return command{refusal: "ERROR: Invalid format " + arg}
	}
	return command{refusal: "ERROR: Unknown command " + line}
}

// ServeRAS listens at a TCP address; collect makes the report of an answer. Close ends it.
func ServeRAS(address, version string, collect func(time.Duration) (*Report, error)) (*RAS, error) {
	ln, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("status: RAS: %w", err)
	}
	go accept(ln, func(conn net.Conn) { serveRAS(conn, version, collect) })
	return &RAS{ln}, nil
}

// RAS serves the protocol.
type RAS struct{ ln net.Listener }

// Address returns the address of the listener.
func (r *RAS) Address() string { return r.ln.Addr().String() }

// Close stops listening.
func (r *RAS) Close() { _ = r.ln.Close() }

// serveRAS serves one client.
func serveRAS(conn net.Conn, version string, collect func(time.Duration) (*Report, error)) {
	in := bufio.NewReaderSize(conn, maxCommand)
	timeout, asJSON := DefaultTimeout, false
	for {
		_ = conn.SetDeadline(time.Now().Add(idleClient))
		line, err := in.ReadSlice('\n')
		if err != nil {
			return // the client has left, or sends no lines
		}
		c := parseCommand(strings.TrimRight(string(line), "\r\n"))
		said := "OK"
		switch c.kind {
		case refused:
			said = c.refusal
		case greeting:
			said = fmt.Sprintf("SERVER PROTOCOL %d", rasProtocol)
		case setTimeout:
			timeout = c.timeout
		case setFormat:
			asJSON = c.json
		case statusOf, verboseStatus:
			_ = conn.SetDeadline(time.Now().Add(2*timeout + idleClient))
			r, err := collect(timeout)
			if err != nil {
				fmt.Fprintf(conn, "ERROR: %v\n", err)
				return
			}
			out := bufio.NewWriter(conn)
			if asJSON {
				writeRASJSON(out, r, version)
			} else {
				r.writeRAS(out, version, c.kind == verboseStatus)
			}
			_ = out.Flush() // a client that has left needs no answer
			return
		}
		if _, err := io.WriteString(conn, said+"\n"); err != nil {
			return
		}
	}
}

// AskRAS asks a server of the protocol for its status, and copies the answer to w.
func AskRAS(address string, timeout time.Duration, verbose, asJSON bool, w io.Writer) error {
	conn, err := net.DialTimeout("tcp", address, timeout)
	if err != nil {
		return fmt.Errorf("status: %w", err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(2*timeout + idleClient))
	in := bufio.NewReader(conn)
	asks := []struct{ ask, want string }{
		{fmt.Sprintf("CLIENT PROTOCOL %d", rasProtocol), "SERVER PROTOCOL "},
		{fmt.Sprintf("TIMEOUT %d", int(math.Ceil(timeout.Seconds()))), "OK"},
		{"SET FORMAT JSON", "OK"},
	}
	if !asJSON {
		asks = asks[:2]
	}
	for _, a := range asks {
		fmt.Fprintln(conn, a.ask)
		line, err := in.ReadString('\n')
		if err != nil {
			return fmt.Errorf("status: %s: %w", address, err)
		}
		if !strings.HasPrefix(strings.ToUpper(line), a.want) {
			return fmt.Errorf("status: %s answers %q to %s", address, strings.TrimSpace(line), a.ask)
		}
	}
	request := "STATUS"
	if verbose {
		request = "VERBOSE STATUS"
	}
	fmt.Fprintln(conn, request)
	n, err := io.Copy(w, in)
	if err == nil && n == 0 {
		err = errors.New("no answer")
	}
	if err != nil {
		return fmt.Errorf("status: %s: %w", address, err)
	}
	return nil
}

// rasDocument is the JSON of an answer. Field names are NCCL's, except those below lightpath.
type rasDocument struct {
	Version string    `json:"nccl_version"`
	Runtime int       `json:"cuda_runtime_version"`
	Driver  int       `json:"cuda_driver_version"`
	Time    string    `json:"timestamp"`
	Count   int       `json:"communicators_count"`
	Comms   []rasComm `json:"communicators"`
	RAS     struct {
		Seconds  float64 `json:"collection_time_sec"`
		Timeouts int     `json:"timeouts_count"`
	} `json:"ras"`
}

type rasComm struct {
	Hash      string       `json:"hash"`
	Secondary string       `json:"secondary_hash"`
	Size      int          `json:"size"`
	Count     int          `json:"ranks_count"`
	Missing   int          `json:"missing_ranks_count"`
	Ranks     []rasRank    `json:"ranks"`
	Absent    []rasMissing `json:"missing_ranks"`
	Own       rasOwn       `json:"lightpath"`
}

// rasOwn holds fields that NCCL's answer lacks.
type rasOwn struct {
	State     string `json:"state"`
	Diagnosis string `json:"diagnosis"`
}

type rasPlace struct {
	Rank   int    `json:"rank"`
	Host   string `json:"host"`
	PID    int    `json:"pid"`
	Device int    `json:"cuda_dev"`
	NVML   int    `json:"nvml_dev"`
}

type rasRank struct {
	rasPlace
	Status struct {
		Init      int  `json:"init_state"`
		Error     int  `json:"async_error"`
		Finalized bool `json:"finalize_called"`
		Destroyed bool `json:"destroy_flag"`
		Aborted   bool `json:"abort_flag"`
	} `json:"status"`
	Counts map[string]uint64 `json:"collective_counts"`
	Op     *Op               `json:"lightpath_operation,omitempty"`
}

type rasMissing struct {
	rasPlace
	Status struct {
		Unresponsive bool `json:"unresponsive"`
		Dead         bool `json:"considered_dead"`
	} `json:"status"`
}

// inProgress is ncclInProgress, the state of a communicator that is being made.
const inProgress = 7

func writeRASJSON(w io.Writer, r *Report, version string) {
	d := rasDocument{Version: version, Time: r.Time.Format(time.DateTime), Count: len(r.Comms), Comms: []rasComm{}}
	d.RAS.Seconds, d.RAS.Timeouts = r.Seconds, len(r.Silent)
	for i := range r.Comms {
		d.Comms = append(d.Comms, r.Comms[i].ras())
	}
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	_ = e.Encode(d) // plain structs; a client that has left needs no answer
}

func (c *Comm) ras() rasComm {
	out := rasComm{
		Hash: "0x" + c.ID, Secondary: "0x0:0x0", Size: c.Size, Ranks: []rasRank{}, Absent: []rasMissing{},
		Own: rasOwn{c.State, c.Diagnosis},
	}
	for i := range c.Ranks {
		r := &c.Ranks[i]
		at := rasPlace{r.Rank, r.Host, r.PID, r.Device, r.Device}
		if r.Answer != Answered {
			m := rasMissing{rasPlace: at}
			m.Status.Unresponsive, m.Status.Dead = true, r.Answer == Gone
			out.Absent = append(out.Absent, m)
			continue
		}
		k := rasRank{rasPlace: at, Counts: r.Counts, Op: r.Op}
		k.Status.Error, k.Status.Finalized = r.Result, r.State == Finalized
		if r.State == Making {
			k.Status.Init = inProgress
		}
		out.Ranks = append(out.Ranks, k)
	}
	out.Count, out.Missing = len(out.Ranks), len(out.Absent)
	return out
}

// writeRAS prints a report for NCCL's client: NCCL's text about a job, then that of Write.
func (r *Report) writeRAS(w io.Writer, version string, verbose bool) {
	hosts, ranks, absent := map[string]bool{}, 0, 0
	for i := range r.Comms {
		for _, k := range r.Comms[i].Ranks {
			hosts[k.Host] = true
			ranks++
			if k.Answer != Answered {
				absent++
			}
		}
	}
	fmt.Fprintf(w, "NCCL version %s, as provided by Lightpath %s\n\n", version, r.Library)
	fmt.Fprintln(w, "Job summary")
	fmt.Fprintln(w, "===========")
	fmt.Fprintf(w, "  hosts %d, processes asked on this host %d, communicators %d, ranks in them %d, without answer "+
		"%d\n\n", len(hosts), r.Processes, len(r.Comms), ranks, absent)
	fmt.Fprintf(w, "Communicators... (%.2fs)\n", r.Seconds)
	fmt.Fprintln(w, "================")
	r.Write(w, verbose)
}
