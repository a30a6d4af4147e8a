// Package batch sends to a server together what is asked for at the same time. Nobody waits while nobody else asks, and the more there
// are, the less each costs.
package batch

import (
	"context"
	"slices"
	"sync"
)

// Lines are a few ways to a server. A question that finds a line free is sent at once, by itself. While all lines are taken questions
// wait, and whoever leaves a line hands it to the first of those who wait, who takes the others along. It is safe for concurrent use.
type Lines[Q any] struct {
	lines, most int
	send        func(ctx context.Context, all []Q)

	mu    sync.Mutex
	taken int // of the lines
	queue []*question[Q]
}

// New returns so many lines, over each of which send asks at most so many questions at once. It leaves the answers in them, and has the
// context of the first, for which it is called.
func New[Q any](lines, most int, send func(ctx context.Context, all []Q)) *Lines[Q] {
	return &Lines[Q]{lines: max(1, lines), most: most, send: send}
}

// question is one that was asked, and who asks.
type question[Q any] struct {
	asked Q
	turn  chan turn // has room for all that is ever sent
}

// turn is what whoever waits is told.
type turn int

const (
	answered turn = iota
	hasLine
)

// Do has q sent and returns when it is answered. The error is that of ctx, if it ended while q waited.
func (l *Lines[Q]) Do(ctx context.Context, q Q) error {
	asked := &question[Q]{q, make(chan turn, 1)}
	if !l.enter(asked) {
		select {
		case <-ctx.Done():
			if l.leave(asked) {
				return ctx.Err()
			}
			if <-asked.turn == hasLine {
				l.handOn()
				return ctx.Err()
			}
			return nil
		case told := <-asked.turn:
			if told == answered {
				return nil
			}
			// Others would go with it, and have no more time than it has.
			if ctx.Err() != nil {
				l.handOn()
				return ctx.Err()
			}
		}
	}
	l.sendWithOthers(ctx, asked)
	return nil
}

// Load is how many lines are taken, and how many questions wait for one.
func (l *Lines[Q]) Load() (taken, waiting int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.taken, len(l.queue)
}

// enter takes a free line, or the last place in the queue.
func (l *Lines[Q]) enter(q *question[Q]) (line bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.taken < l.lines {
		l.taken++
		return true
	}
	l.queue = append(l.queue, q)
	return false
}

// leave takes q out of the queue. It is false when q is not in it any more: then it is told what became of it.
func (l *Lines[Q]) leave(q *question[Q]) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.Index(l.queue, q)
	if i < 0 {
		return false
	}
	l.queue = slices.Delete(l.queue, i, i+1)
	return true
}

// handOn gives the line to the first of the queue, or gives it up.
func (l *Lines[Q]) handOn() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.queue) == 0 {
		l.taken--
		return
	}
	next := l.queue[0]
	l.queue = slices.Delete(l.queue, 0, 1)
	next.turn <- hasLine
}

// company takes those out of the queue who are to go with the one that has the line.
func (l *Lines[Q]) company() []*question[Q] {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := min(len(l.queue), l.most-1)
	taken := slices.Clone(l.queue[:n])
	l.queue = slices.Delete(l.queue, 0, n)
	return taken
}

// sendWithOthers has first, which has a line, answered together with whoever goes with it, and hands the line on.
func (l *Lines[Q]) sendWithOthers(ctx context.Context, first *question[Q]) {
	others := l.company()
	defer func() {
		l.handOn()
		for _, q := range others {
			q.turn <- answered
		}
	}()
	all := make([]Q, 1, 1+len(others))
	all[0] = first.asked
	for _, q := range others {
		all = append(all, q.asked)
	}
	l.send(ctx, all)
}
