package scpi

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Limits of a client's requests.
const (
	maxLine   = 128 << 10
	maxAnswer = 64 << 10 // beyond this size, the rest of a line is not executed
	maxList   = 8192     // ports in one list
	maxQuery  = 256      // ports in one query of power or state
)

// standardError is an entry of the error queue: a number of the SCPI standard, and a text.
type standardError struct {
	number int
	text   string
}

func (e standardError) Error() string { return fmt.Sprintf("%d,%q", e.number, e.text) }

// Errors of the standard.
var (
	errHeader   = standardError{-113, "Undefined header"}
	errSyntax   = standardError{-102, "Syntax error"}
	errTooMuch  = standardError{-223, "Too much data"}
	errRange    = standardError{-222, "Data out of range"}
	errConflict = standardError{-221, "Settings conflict"}
	errFailed   = standardError{-200, "Execution error"}
	errHardware = standardError{-241, "Hardware missing"}
	errOverflow = standardError{-350, "Queue overflow"}
)

func (e standardError) about(what string) standardError {
	return standardError{e.number, e.text + ";" + strings.Map(printable, what)}
}

func printable(r rune) rune {
	if r < ' ' || r > '~' || r == '"' {
		return '?'
	}
	return r
}

// command is one program message unit: an absolute header in short form, and its parameters.
type command struct {
	header string // "OXC:SWIT:CONN:ADD", "*OPC?"
	params string
}

// keywords are the long forms of the headers; capitals are the short form.
var keywords = []string{"OXC", "SWITch", "CONNect", "DISConnect", "ADD", "ONLY", "SUB", "ALL", "STATe", "PORT", "SIZE",
	"PMON", "POWer", "SYSTem", "ERRor", "NEXT"}

// shortForm returns the short form of a word of a header, in capitals.
func shortForm(word string) string {
	up := strings.ToUpper(word)
	for _, k := range keywords {
		short := strings.TrimRight(k, "abcdefghijklmnopqrstuvwxyz")
		if up == short || up == strings.ToUpper(k) {
			return short
		}
	}
	return up
}

// split divides a line into units, separated by semicolons, each with an absolute header. A header without a leading
// colon continues at the level of the previous one. Common commands do not change the level.
func split(line string) []command {
	var all []command
	var level []string
	for unit := range strings.SplitSeq(line, ";") {
		unit = strings.TrimSpace(unit)
		if unit == "" {
			continue
		}
		header, params, _ := strings.Cut(unit, " ")
		c := command{params: strings.TrimSpace(params)}
		if strings.HasPrefix(header, "*") {
			c.header = strings.ToUpper(header)
			all = append(all, c)
			continue
		}
		words := append([]string(nil), level...)
		if rest, absolute := strings.CutPrefix(header, ":"); absolute || len(all) == 0 {
			words, header = nil, rest
		}
		query := strings.HasSuffix(header, "?")
		for w := range strings.SplitSeq(strings.TrimSuffix(header, "?"), ":") {
			words = append(words, shortForm(w))
		}
		level = words[:len(words)-1]
		if c.header = strings.Join(words, ":"); query {
			c.header += "?"
		}
		all = append(all, c)
	}
	return all
}

// lists reads a number of lists of ports, "(@1,2,5:7),(@17)".
func lists(params string, want int) ([][]int, error) {
	var all [][]int
	rest := strings.ReplaceAll(params, " ", "")
	for len(all) < want {
		inside, ok := strings.CutPrefix(rest, "(@")
		if !ok {
			return nil, errSyntax
		}
		text, after, ok := strings.Cut(inside, ")")
		if !ok {
			return nil, errSyntax
		}
		list, err := ports(text)
		if err != nil {
			return nil, err
		}
		all = append(all, list)
		if rest = after; len(all) < want {
			if rest, ok = strings.CutPrefix(rest, ","); !ok {
				return nil, errSyntax
			}
		}
	}
	if rest != "" {
		return nil, errSyntax
	}
	return all, nil
}

// ports reads the inside of a list: numbers and ranges.
func ports(text string) ([]int, error) {
	list := []int{}
	if text == "" {
		return list, nil
	}
	for item := range strings.SplitSeq(text, ",") {
		from, to, ranged := strings.Cut(item, ":")
		if !ranged {
			to = from
		}
		first, err1 := strconv.ParseUint(from, 10, 16)
		last, err2 := strconv.ParseUint(to, 10, 16)
		if errors.Is(err1, strconv.ErrRange) || errors.Is(err2, strconv.ErrRange) {
			return nil, errRange
		}
		if err1 != nil || err2 != nil {
			return nil, errSyntax
		}
		for p := first; p <= last; p++ {
			if len(list) == maxList {
				return nil, errTooMuch
			}
			list = append(list, int(p))
		}
	}
	return list, nil
}

// text writes a list.
func text(list []int) string {
	b := []byte("(@")
	for i, p := range list {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, int64(p), 10)
	}
	return string(append(b, ')'))
}
