package scpi

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"lightpath/internal/brief"
	"lightpath/ocsctl/driver"
)

// maxPorts bounds the ports of a switch, and of a list that it sends.
const maxPorts = 16384

func protocolError(what, reply string) error {
	return fmt.Errorf("scpi: %w: %s in %q", driver.ErrProtocol, what, brief.Text(reply, 60))
}

// parseTable reads the answer to CONNect:STATe?: either two lists, "(@1,2),(@17,18)", or a pair of
// lists per circuit, "(@1),(@17);(@2),(@18)".
func parseTable(reply string) (in, out []int, err error) {
	for group := range strings.SplitSeq(strings.ReplaceAll(reply, " ", ""), ";") {
		if group == "" {
			continue
		}
		left, right, ok := strings.Cut(group, "),(@")
		left, ok1 := strings.CutPrefix(left, "(@")
		right, ok2 := strings.CutSuffix(right, ")")
		if !ok || !ok1 || !ok2 {
			return nil, nil, protocolError("no pair of lists", reply)
		}
		a, err1 := parseList(left)
		b, err2 := parseList(right)
		if err1 != nil || err2 != nil {
			return nil, nil, protocolError("no list of ports", reply)
		}
		if len(a) != len(b) {
			return nil, nil, protocolError("lists of different lengths", reply)
		}
		if in, out = append(in, a...), append(out, b...); len(in) > maxPorts {
			return nil, nil, protocolError("too many ports", reply)
		}
	}
	return in, out, nil
}

func parseList(text string) ([]int, error) {
	if text == "" {
		return nil, nil
	}
	items := strings.Split(text, ",")
	var list []int
	for _, item := range items {
		from, to, ranged := strings.Cut(item, ":")
		first, err := strconv.ParseUint(from, 10, 16)
		last := first
		if err == nil && ranged {
			last, err = strconv.ParseUint(to, 10, 16)
		}
		if err != nil || last < first || len(list)+int(last-first) >= maxPorts {
			return nil, driver.ErrProtocol
		}
		for p := first; p <= last; p++ {
			list = append(list, int(p))
		}
	}
	return list, nil
}

// parseWords reads "(a,b,c)" with n words.
func parseWords(reply string, n int) ([]string, error) {
	inside, ok1 := strings.CutPrefix(strings.TrimSpace(reply), "(")
	inside, ok2 := strings.CutSuffix(inside, ")")
	words := strings.Split(inside, ",")
	if !ok1 || !ok2 || len(words) != n {
		return nil, protocolError(fmt.Sprintf("no list of %d", n), reply)
	}
	for i := range words {
		words[i] = strings.TrimSpace(words[i])
	}
	return words, nil
}

// parsePowers reads powers in dBm.
func parsePowers(reply string, n int) ([]float64, error) {
	words, err := parseWords(reply, n)
	if err != nil {
		return nil, err
	}
	dbm := make([]float64, n)
	for i, w := range words {
		if !isPower(w) {
			return nil, protocolError("no power", reply)
		}
		dbm[i], _ = strconv.ParseFloat(w, 64)
	}
	return dbm, nil
}

// isPower reports whether a word is a power in dBm.
func isPower(word string) bool {
	dbm, err := strconv.ParseFloat(word, 64)
	return err == nil && math.Abs(dbm) <= 200
}

// The words of port states: E is an enabled port, D one that was switched off, F one that failed.
const (
	enabled  = "E"
	disabled = "D"
	failed   = "F"
)

// isState reports whether a word is the state of a port.
func isState(word string) bool { return word == enabled || word == disabled || word == failed }

// parseErrors reads an error queue, `-222,"Data out of range",...`, and returns its errors.
func parseErrors(reply string) ([]string, error) {
	var all []string
	for rest := strings.TrimSpace(reply); ; {
		number, after, ok := strings.Cut(rest, ",")
		code, err := strconv.Atoi(strings.TrimSpace(number))
		after, quoted := strings.CutPrefix(strings.TrimSpace(after), `"`)
		text, after, closed := strings.Cut(after, `"`)
		if !ok || err != nil || !quoted || !closed {
			return nil, protocolError("no error queue", reply)
		}
		if code != 0 {
			all = append(all, fmt.Sprintf("%d %s", code, brief.Text(text, 200)))
		}
		if after = strings.TrimSpace(after); after == "" {
			return all, nil
		}
		if rest, ok = strings.CutPrefix(after, ","); !ok {
			return nil, protocolError("no error queue", reply)
		}
	}
}

// listText writes a list of ports.
func listText(ports []int) string {
	b := []byte("(@")
	for i, p := range ports {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, int64(p), 10)
	}
	return string(append(b, ')'))
}
