package etcd

import (
	"context"
	"log/slog"
	"runtime"
	"strings"
	"sync/atomic"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// quiet returns a logger for etcd that passes warnings to l until muted is set. etcd's fatal errors and panics go to
// last.
func quiet(l *slog.Logger, muted *atomic.Bool, last zapcore.CheckWriteHook) *zap.Logger {
	core := &slogCore{log: l.With("component", "etcd"), muted: muted}
	return zap.New(core, zap.WithFatalHook(last), zap.WithPanicHook(last))
}

// lastWords handles a fatal error of etcd. While the server starts, it becomes an error of the start, and only the
// goroutine ends. Later it is a panic: a controller that can no longer serve the store must release the directory, and
// only the end of the process does that for certain.
type lastWords struct {
	started atomic.Bool
	said    chan string
}

func newLastWords() *lastWords { return &lastWords{said: make(chan string, 1)} }

// OnWrite implements zapcore.CheckWriteHook.
func (w *lastWords) OnWrite(e *zapcore.CheckedEntry, fields []zapcore.Field) {
	if w.started.Load() {
		panic("etcd: " + e.Message)
	}
	words := e.Message
	for _, f := range fields {
		if err, ok := f.Interface.(error); ok && f.Type == zapcore.ErrorType {
			words += ": " + err.Error()
		}
	}
	select {
	case w.said <- words:
	default:
	}
	runtime.Goexit()
}

// slogCore is a zapcore.Core that writes to a slog.Logger.
type slogCore struct {
	log   *slog.Logger
	muted *atomic.Bool
}

func (c *slogCore) Enabled(l zapcore.Level) bool { return l >= zapcore.WarnLevel }

func (c *slogCore) With(fields []zapcore.Field) zapcore.Core {
	return &slogCore{log: c.log.With(attributes(fields)...), muted: c.muted}
}

// harmless lists warnings to drop. The server has one socket on purpose, and only this user can open it. A new store
// has no schema version until its first write; etcd's monitor of that version may look before, and looks again.
var harmless = map[string]bool{
	"Running http and grpc server on single port. This is not recommended for production.": true,
	"simple token is not cryptographically signed":                                         true,
	"Failed to detect schema version":                                                      true,
	"failed to update storage version":                                                     true,
}

// applying ends the warning of a new member whose election timer ends before it has applied its own configuration. It
// tries again. The message begins with an id and a term.
const applying = "there are still pending configuration changes to apply"

func (c *slogCore) Check(e zapcore.Entry, ce *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	dropped := harmless[e.Message] || strings.HasSuffix(e.Message, applying) || c.muted.Load()
	if c.Enabled(e.Level) && !dropped {
		return ce.AddCore(e, c)
	}
	return ce
}

func (c *slogCore) Write(e zapcore.Entry, fields []zapcore.Field) error {
	level := slog.LevelWarn
	if e.Level >= zapcore.ErrorLevel {
		level = slog.LevelError
	}
	c.log.Log(context.Background(), level, e.Message, attributes(fields)...)
	return nil
}

func (c *slogCore) Sync() error { return nil }

func attributes(fields []zapcore.Field) []any {
	enc := zapcore.NewMapObjectEncoder()
	for _, f := range fields {
		f.AddTo(enc)
	}
	var attrs []any
	for k, v := range enc.Fields {
		attrs = append(attrs, slog.Any(k, v))
	}
	return attrs
}
