package settings

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

const (
	// linesAtOnce is how many lines of one message may come at once, and lineEvery in what time there may be one more.
	linesAtOnce = 20
	lineEvery   = time.Second
	// maxMessages bounds how many messages are told apart. The programs have fewer; more are those of libraries, with values in them, and
	// count as one.
	maxMessages = 100
)

// sparing is a handler that hands on only some of the warnings and errors that have the same message, so that whoever floods a program
// with what fails does not fill its disk: 20 at once and one a second. The next that is handed on says how many were left out before it.
// What is below a warning, as the line of each request, is handed on as it is: LOG_LEVEL=warn is without it.
type sparing struct {
	slog.Handler
	said *said
}

func newSparing(h slog.Handler) slog.Handler {
	return sparing{h, &said{messages: make(map[string]*message)}}
}

// Handle implements slog.Handler.
func (h sparing) Handle(ctx context.Context, r slog.Record) error {
	if r.Level >= slog.LevelWarn {
		leftOut, ok := h.said.again(r.Message, time.Now())
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
func (h sparing) WithAttrs(attrs []slog.Attr) slog.Handler {
	return sparing{h.Handler.WithAttrs(attrs), h.said}
}

// WithGroup implements slog.Handler.
func (h sparing) WithGroup(name string) slog.Handler {
	return sparing{h.Handler.WithGroup(name), h.said}
}

// said is what was logged lately, by message.
type said struct {
	mu       sync.Mutex
	messages map[string]*message
}

type message struct {
	// free is when all of linesAtOnce may come again.
	free    time.Time
	leftOut int
}

// again reports whether a message may be logged once more, and how often it was not since the last time.
func (s *said) again(text string, now time.Time) (leftOut int, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.messages[text]
	if m == nil && len(s.messages) >= maxMessages {
		m, text = s.messages[""], ""
	}
	if m == nil {
		m = new(message)
		s.messages[text] = m
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
