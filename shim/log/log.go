package log

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Level is NCCL_DEBUG's.
type Level uint8

// The levels. Each includes the levels before it.
const (
	None Level = iota
	Version
	Warn
	Info
	Trace
)

var levelNames = [...]string{"NONE", "VERSION", "WARN", "INFO", "TRACE"}

// Subsystem is the subject of an INFO line.
type Subsystem uint32

// The subsystems, sets of them by union.
const (
	Init Subsystem = 1 << iota
	Bootstrap
	Env
	Coll
	Net
	Tuning
	All = 1<<iota - 1
)

// subsystemNames uses NCCL's names, including subsystems without lines of Lightpath.
var subsystemNames = map[string]Subsystem{
	"INIT": Init, "BOOTSTRAP": Bootstrap, "ENV": Env, "COLL": Coll, "NET": Net,
	"TUNING": Tuning, "ALL": All, "P2P": 0, "SHM": 0, "GRAPH": 0, "ALLOC": 0, "CALL": 0,
	"PROXY": 0, "NVLS": 0, "REG": 0, "PROFILE": 0, "RAS": 0,
}

// otherLevels maps levels of NCCL without lines of Lightpath to the next lower level.
var otherLevels = map[string]Level{"ATTN": Warn, "ABORT": Info}

// Set takes a level by its name, in any case. Any other text leaves the level unchanged.
func (p *Level) Set(v string) error {
	for i, name := range levelNames {
		if strings.EqualFold(v, name) {
			*p = Level(i)
			return nil
		}
	}
	below, known := otherLevels[strings.ToUpper(v)]
	if !known {
		return fmt.Errorf("%q is none of VERSION, WARN, INFO, TRACE", v)
	}
	*p = below
	return nil
}

// Logger writes NCCL's format: `host:pid:tid [device] NCCL INFO ...`. It is for set-up and failures, never for the hot
// path. Safe for concurrent use; nil logs nothing.
type Logger struct {
	mu     sync.Mutex
	out    io.Writer
	file   *os.File // to close; nil for standard output
	level  Level
	subs   Subsystem
	times  Timestamps
	device int
	Host   string // of this process, as PID is; neither changes
	PID    int
}

// Options are the settings of NCCL_DEBUG and the variables that begin so.
type Options struct {
	Level      Level
	File       string // the file for lines, with %h and %p for host and process; "": standard output
	Subsystems string // subsystems whose INFO lines are written: NCCL_DEBUG_SUBSYS
	Times      Timestamps
}

// New opens a log for a device, which its lines name. It logs options that it cannot follow. By default it writes to
// standard output, as NCCL does.
func New(o *Options, device int) *Logger {
	host, err := os.Hostname()
	if err != nil {
		host = "localhost"
	}
	l := &Logger{out: os.Stdout, level: o.Level, subs: parseSubsystems(o.Subsystems), times: o.Times, Host: host,
		PID: os.Getpid(), device: device}
	if o.File != "" && o.Level > None {
		f, err := os.OpenFile(ExpandPath(o.File, host, l.PID), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
		if err == nil {
			l.out, l.file = f, f
		} else {
			l.Warn("environment variable NCCL_DEBUG_FILE: %v: standard output is used.", err)
		}
	}
	return l
}

// parseSubsystems reads NCCL_DEBUG_SUBSYS. It ignores unknown names, such as those of a newer NCCL.
func parseSubsystems(list string) Subsystem {
	list, exclude := strings.CutPrefix(list, "^")
	var set Subsystem
	for name := range strings.SplitSeq(list, ",") {
		set |= subsystemNames[strings.ToUpper(strings.TrimSpace(name))]
	}
	if exclude {
		return All &^ set
	}
	return set
}

// ExpandPath replaces %h and %p as NCCL does.
func ExpandPath(path, host string, pid int) string {
	return strings.NewReplacer("%h", host, "%p", fmt.Sprint(pid)).Replace(path)
}

// Version writes a line of the level VERSION.
func (l *Logger) Version(format string, args ...any) { l.line(Version, All, format, args...) }

// standardError is a variable for tests.
var standardError io.Writer = os.Stderr

// notices are the texts that Notice has written on standard error.
var notices sync.Map

// Notice writes a warning that a user must see at any level. Below WARN it goes to standard error, once per process for
// each text.
func (l *Logger) Notice(format string, args ...any) {
	if l == nil || l.level >= Warn {
		l.Warn(format, args...)
		return
	}
	text := fmt.Sprintf(format, args...)
	if _, twice := notices.LoadOrStore(text, true); !twice {
		_, _ = fmt.Fprintf(standardError, "%s:%d [%d] NCCL WARN %s\n", l.Host, l.PID, l.device, text)
	}
}

// Warn writes a line of the level WARN.
func (l *Logger) Warn(format string, args ...any) { l.line(Warn, All, format, args...) }

// Info writes a line of the level INFO, if lines of the subsystem are enabled.
func (l *Logger) Info(s Subsystem, format string, args ...any) {
	l.line(Info, s, format, args...)
}

// Plugin writes a line of a plugin.
func (l *Logger) Plugin(warn bool, line string) {
	if warn {
		l.Warn("plugin: %s", line)
	} else {
		l.Info(Init|Net, "plugin: %s", line)
	}
}

func (l *Logger) line(level Level, s Subsystem, format string, args ...any) {
	if l == nil || l.level < level || (level >= Info && l.subs&s == 0) {
		return
	}
	name := levelNames[level]
	if level == Version {
		name = "INFO"
	}
	text := fmt.Sprintf("%s%s:%d:%d [%d] NCCL %s %s\n", l.times.prefix(level, time.Now()), l.Host, l.PID, unix.Gettid(),
		l.device, name, fmt.Sprintf(format, args...))
	l.mu.Lock()
	defer l.mu.Unlock()
	// A failed write to the log must not fail a collective.
	_, _ = io.WriteString(l.out, text)
}

// Close closes the log's file, if it has one.
func (l *Logger) Close() {
	if l != nil && l.file != nil {
		_ = l.file.Close()
	}
}
