package settings

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

const (
	// linesAtOnce is the burst of records with one message, lineEvery the time per further record.
	linesAtOnce = 20
	lineEvery   = time.Second
	// maxMessages bounds the number of messages with a limit of their own. The programs have fewer; further ones come from libraries that put
	// values into messages, and share one limit.
	maxMessages = 100
)

// rateLimitedHandler limits warnings and errors with the same message to a burst of 20 and then one per second, so that a flood of failing
// requests does not fill the disk. The next record that passes has the attribute leftOut with the number of dropped records. The handler
// passes records below warning level, such as the access log, through unchanged; LOG_LEVEL=warn turns those off.
type rateLimitedHandler struct {
	slog.Handler
	limiter *messageLimiter
}

func newRateLimitedHandler(h slog.Handler) slog.Handler {
	return rateLimitedHandler{h, &messageLimiter{messages: make(map[string]*message)}}
}

// Handle implements slog.Handler.
func (h rateLimitedHandler) Handle(ctx context.Context, r slog.Record) error {
	if r.Level >= slog.LevelWarn {
		leftOut, ok := h.limiter.allow(r.Message, time.Now())
		if !ok {
			return nil
		}
		if leftOut > 0 {
			r = r.Clone()
			r.AddAttrs(slog.Int("leftOut", leftOut))
		}
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h rateLimitedHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return rateLimitedHandler{h.Handler.WithAttrs(attrs), h.limiter}
}

// WithGroup implements slog.Handler.
func (h rateLimitedHandler) WithGroup(name string) slog.Handler {
	return rateLimitedHandler{h.Handler.WithGroup(name), h.limiter}
}

// messageLimiter limits records per message.
type messageLimiter struct {
	mu       sync.Mutex
	messages map[string]*message
}

type message struct {
	// free is when the full burst is available again.
	free    time.Time
	leftOut int
}

// allow reports whether a record with this message may be logged, and how many were dropped since the last one.
func (l *messageLimiter) allow(text string, now time.Time) (leftOut int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	m := l.messages[text]
	if m == nil && len(l.messages) >= maxMessages {
		m, text = l.messages[""], ""
	}
	if m == nil {
		m = new(message)
		l.messages[text] = m
	}
	if m.free.Before(now) {
		m.free = now
	}
	if m.free.Sub(now) > (linesAtOnce-1)*lineEvery {
		m.leftOut++
		return 0, false
	}
	m.free = m.free.Add(lineEvery)
	leftOut, m.leftOut = m.leftOut, 0
	return leftOut, true
}
