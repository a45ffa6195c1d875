package report

import (
	"context"
	"log/slog"

	"github.com/wllock/wllock/internal/nametext"
)

// logger is the user's handler of log lines behind a notifier. It is a handler itself, for what logs by its own.
type logger struct {
	to        slog.Handler
	instance  string                          // in every line
	redaction *Redaction                      // of keys, and of what logs by its own
	with      func(slog.Handler) slog.Handler // attributes and groups; nil: none
	notifier  *notifier
}

// put queues a line, with the full name of a lock unless that is "": redacted, or for a handler that takes debug lines. The redaction is
// foreign code as well, so it runs where the handler does.
func (l logger) put(ctx context.Context, line slog.Record, key string) {
	if l.off() {
		return
	}
	l.notifier.put(report{run: func(*report) {
		to := l.to
		if l.with != nil {
			to = l.with(to)
		}
		if !to.Enabled(ctx, line.Level) {
			return
		}
		line.AddAttrs(slog.String("instance", l.instance))
		if key != "" && (l.redaction != nil || to.Enabled(ctx, slog.LevelDebug)) {
			line.AddAttrs(slog.String("key", nametext.Cut(l.redaction.Name(key))))
		}
		_ = to.Handle(ctx, line)
	}})
}

func (l logger) off() bool { return l.to == slog.DiscardHandler }

// Enabled implements slog.Handler. The user's handler is asked later.
func (l logger) Enabled(context.Context, slog.Level) bool { return !l.off() }

// Handle implements slog.Handler. The errors in these lines are the backend's, which may name a key.
func (l logger) Handle(ctx context.Context, line slog.Record) error {
	safe := slog.NewRecord(line.Time, line.Level, line.Message, line.PC)
	for a := range line.Attrs {
		if err, ok := a.Value.Any().(error); ok {
			a.Value = slog.StringValue(l.redaction.Error(err).Error())
		}
		safe.AddAttrs(a)
	}
	l.put(ctx, safe, "")
	return nil
}

// WithAttrs implements slog.Handler.
func (l logger) WithAttrs(attrs []slog.Attr) slog.Handler {
	return l.derive(func(to slog.Handler) slog.Handler { return to.WithAttrs(attrs) })
}

// WithGroup implements slog.Handler.
func (l logger) WithGroup(name string) slog.Handler {
	return l.derive(func(to slog.Handler) slog.Handler { return to.WithGroup(name) })
}

func (l logger) derive(with func(slog.Handler) slog.Handler) logger {
	before := l.with
	l.with = func(to slog.Handler) slog.Handler {
		if before != nil {
			to = before(to)
		}
		return with(to)
	}
	return l
}
