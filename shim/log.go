package shim

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// LogLevel is NCCL_DEBUG's.
type LogLevel uint8

// The levels, each with all before it.
const (
	LogNone LogLevel = iota
	LogVersion
	LogWarn
	LogInfo
	LogTrace
)

var levelNames = [...]string{"NONE", "VERSION", "WARN", "INFO", "TRACE"}

// subsystem is what an INFO line is about.
type subsystem uint32

const (
	subInit subsystem = 1 << iota
	subBootstrap
	subEnv
	subColl
	subNet
	subTuning
	subAll = 1<<iota - 1
)

// subsystemNames uses NCCL's names; those that Lightpath has no lines for are accepted.
var subsystemNames = map[string]subsystem{
	"INIT": subInit, "BOOTSTRAP": subBootstrap, "ENV": subEnv, "COLL": subColl, "NET": subNet,
	"TUNING": subTuning, "ALL": subAll, "P2P": 0, "SHM": 0, "GRAPH": 0, "ALLOC": 0, "CALL": 0,
	"PROXY": 0, "NVLS": 0, "REG": 0, "PROFILE": 0, "RAS": 0,
}

// otherLevels are levels of NCCL's that Lightpath has no lines of, with the one below.
var otherLevels = map[string]LogLevel{"ATTN": LogWarn, "ABORT": LogInfo}

func setLevel(p *LogLevel, v string) error {
	for i, name := range levelNames {
		if strings.EqualFold(v, name) {
			*p = LogLevel(i)
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

// logger writes NCCL's format: `host:pid:tid [device] NCCL INFO ...`. It is for set-up and
// failure, never for the path of a call. Safe for concurrent use; nil logs nothing.
type logger struct {
	mu     sync.Mutex
	out    io.Writer
	file   *os.File // to close; nil for standard output
	level  LogLevel
	subs   subsystem
	times  timestamps
	host   string
	pid    int
	device int
}

// newLogger opens what the configuration asks for, and says what of it cannot be had. NCCL writes to standard output by
// default, and so do we.
func newLogger(c *Config, device int) *logger {
	host, err := os.Hostname()
	if err != nil {
		host = "localhost"
	}
	l := &logger{out: os.Stdout, level: c.Debug, subs: parseSubsystems(c.DebugSubsys), times: c.DebugTime, host: host, pid: os.Getpid(), device: device}
	if c.DebugFile != "" && c.Debug > LogNone {
		f, err := os.OpenFile(expandPath(c.DebugFile, host, l.pid), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
		if err == nil {
			l.out, l.file = f, f
		} else {
			l.warn("environment variable NCCL_DEBUG_FILE: %v: standard output is used.", err)
		}
	}
	for _, line := range c.warnings {
		l.warn("%s", line)
	}
	return l
}

// parseSubsystems reads NCCL_DEBUG_SUBSYS; names of a newer NCCL are ignored.
func parseSubsystems(list string) subsystem {
	list, exclude := strings.CutPrefix(list, "^")
	var set subsystem
	for name := range strings.SplitSeq(list, ",") {
		set |= subsystemNames[strings.ToUpper(strings.TrimSpace(name))]
	}
	if exclude {
		return subAll &^ set
	}
	return set
}

// expandPath replaces %h and %p as NCCL does.
func expandPath(path, host string, pid int) string {
	return strings.NewReplacer("%h", host, "%p", fmt.Sprint(pid)).Replace(path)
}

func (l *logger) version(format string, args ...any) { l.line(LogVersion, subAll, format, args...) }
func (l *logger) warn(format string, args ...any)    { l.line(LogWarn, subAll, format, args...) }
func (l *logger) info(s subsystem, format string, args ...any) {
	l.line(LogInfo, s, format, args...)
}

func (l *logger) line(level LogLevel, s subsystem, format string, args ...any) {
	if l == nil || l.level < level || (level >= LogInfo && l.subs&s == 0) {
		return
	}
	name := levelNames[level]
	if level == LogVersion {
		name = "INFO"
	}
	text := fmt.Sprintf("%s%s:%d:%d [%d] NCCL %s %s\n", l.times.prefix(level, time.Now()), l.host, l.pid, unix.Gettid(), l.device, name, fmt.Sprintf(format, args...))
	l.mu.Lock()
	defer l.mu.Unlock()
	// A log that cannot be written is no reason to fail a collective.
	_, _ = io.WriteString(l.out, text)
}

// Close closes the log's file, if it has one of its own.
func (l *logger) Close() {
	if l != nil && l.file != nil {
		_ = l.file.Close()
	}
}
