package log

import (
	"fmt"
	"strings"
	"time"
)

// Timestamps selects the lines that begin with a time, and the format of the time.
type Timestamps struct {
	format string
	levels uint32 // bit by Level
}

// SetFormat sets a format of strftime. It appends a space at the end if the environment's value has lost it.
func (t *Timestamps) SetFormat(v string) error {
	if _, err := strftime(v, time.Time{}); err != nil {
		return err
	}
	t.format = strings.TrimRight(v, " ") + " "
	return nil
}

// SetLevels takes NCCL_DEBUG_TIMESTAMP_LEVELS.
func (t *Timestamps) SetLevels(v string) error {
	const all = 1<<len(levelNames) - 1
	list, exclude := strings.CutPrefix(v, "^")
	set := uint32(0)
	for name := range strings.SplitSeq(list, ",") {
		name = strings.TrimSpace(name)
		if strings.EqualFold(name, "ALL") {
			set = all
			continue
		}
		var l Level
		if err := l.Set(name); err != nil {
			return err
		}
		set |= 1 << l
	}
	if exclude {
		set = all &^ set
	}
	t.levels = set
	return nil
}

// prefix returns the beginning of a line of a level.
func (t *Timestamps) prefix(level Level, now time.Time) string {
	if t.levels>>level&1 == 0 {
		return ""
	}
	s, _ := strftime(t.format, now) // was checked
	return s
}

// strftimeForms are the conversions of strftime that have a layout in Go.
var strftimeForms = map[byte]string{
	'Y': "2006", 'y': "06", 'm': "01", 'd': "02", 'e': "_2", 'H': "15", 'I': "03", 'M': "04", 'S': "05", 'p': "PM",
	'F': "2006-01-02", 'T': "15:04:05", 'R': "15:04", 'D': "01/02/06", 'j': "002", 'a': "Mon", 'A': "Monday", 'b': "Jan",
	'B': "January", 'h': "Jan", 'z': "-0700", 'Z': "MST", 'c': "Mon Jan _2 15:04:05 2006", 'x': "01/02/06",
	'X': "15:04:05",
}

// strftime writes t as C's strftime does in the C locale; %1f to %9f are so many digits of the
// fraction of the second, as in NCCL.
func strftime(format string, t time.Time) (string, error) {
	var b strings.Builder
	for i := 0; i < len(format); i++ {
		if format[i] != '%' {
			b.WriteByte(format[i])
			continue
		}
		if i++; i == len(format) {
			return "", fmt.Errorf("%q ends in the middle of a conversion", format)
		}
		c := format[i]
		layout, known := strftimeForms[c]
		switch {
		case known:
			b.WriteString(t.Format(layout))
		case c == '%':
			b.WriteByte('%')
		case c == 's':
			fmt.Fprint(&b, t.Unix())
		case c >= '1' && c <= '9' && strings.HasPrefix(format[i+1:], "f"):
			fmt.Fprintf(&b, "%09d", t.Nanosecond())
			s := b.String()
			b.Reset()
			b.WriteString(s[:len(s)-9+int(c-'0')])
			i++
		default:
			return "", fmt.Errorf("%q: unknown conversion %%%c", format, c)
		}
	}
	return b.String(), nil
}
