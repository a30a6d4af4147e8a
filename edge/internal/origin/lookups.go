package origin

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"deeplink/shared/postgres"
)

const (
	// connectionsPerLine leaves most connections to those who ask for something else, and the processors of Postgres to others: of many
	// batches at once each would be shorter and cost more.
	connectionsPerLine = 8
	// maxBatch is how many lookups a batch has at most.
	maxBatch = 64
)

// lookups sends lookups to Postgres over a few lines. One that finds a line free is sent at once, by itself. While all lines are taken
// lookups wait, and whoever leaves a line hands it to the first of those who wait, who takes the others along: the more there are, the
// less each costs.
type lookups struct {
	pool  *pgxpool.Pool
	lines int // how many there are
	mu    sync.Mutex
	taken int // of the lines
	queue []*lookup
}

func newLookups(pool *pgxpool.Pool) *lookups {
	return &lookups{pool: pool, lines: max(1, int(pool.Config().MaxConns)/connectionsPerLine)}
}

// lookup is one question and, once turn says so, its answer.
type lookup struct {
	query, domain, code string
	found               Found
	err                 error
	turn                chan turn // has room for all that is ever sent
}

// turn is what whoever waits is told.
type turn int

const (
	answered turn = iota
	hasLine
)

// ask returns what the query answers about a code on a domain.
func (s *lookups) ask(ctx context.Context, query, domain, code string) (Found, error) {
	l := &lookup{query: query, domain: domain, code: code, turn: make(chan turn, 1)}
	if !s.enter(l) {
		select {
		case <-ctx.Done():
			if s.leave(l) {
				return Found{}, ctx.Err()
			}
			if <-l.turn == hasLine {
				s.handOn()
				return Found{}, ctx.Err()
			}
			return l.found, l.err
		case told := <-l.turn:
			if told == answered {
				return l.found, l.err
			}
		}
	}
	s.send(ctx, l)
	return l.found, l.err
}

// enter takes a free line, or the last place in the queue.
func (s *lookups) enter(l *lookup) (line bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.taken < s.lines {
		s.taken++
		return true
	}
	s.queue = append(s.queue, l)
	return false
}

// leave takes l out of the queue. It is false when l is not in it any more: then it is told what became of it.
func (s *lookups) leave(l *lookup) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.Index(s.queue, l)
	if i < 0 {
		return false
	}
	s.queue = slices.Delete(s.queue, i, i+1)
	return true
}

// handOn gives the line to the first of the queue, or gives it up.
func (s *lookups) handOn() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) == 0 {
		s.taken--
		return
	}
	next := s.queue[0]
	s.queue = slices.Delete(s.queue, 0, 1)
	next.turn <- hasLine
}

// company takes those out of the queue who are to go with the one that has the line.
func (s *lookups) company() []*lookup {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := min(len(s.queue), maxBatch-1)
	taken := slices.Clone(s.queue[:n])
	s.queue = slices.Delete(s.queue, 0, n)
	return taken
}

// send answers first, which has a line, and whoever goes with it, and hands the line on. All of them have as long as first has: who is
// cut short by that is told that Postgres could not be reached, which says nothing about the link.
func (s *lookups) send(ctx context.Context, first *lookup) {
	others := s.company()
	defer func() {
		s.handOn()
		for _, l := range others {
			l.turn <- answered
		}
	}()
	if len(others) == 0 {
		first.err = again(func() (err error) {
			first.found, err = scanFound(s.pool.QueryRow(ctx, first.query, first.domain, first.code))
			return err
		})
		return
	}
	all := append([]*lookup{first}, others...)
	for _, l := range all {
		l.err = errUnsent
	}
	s.sendAll(ctx, all)
	// A statement that failed takes those behind it along.
	for _, l := range all {
		if l.err != nil && !postgres.Unreachable(l.err) {
			l.err = again(func() (err error) {
				l.found, err = scanFound(s.pool.QueryRow(ctx, l.query, l.domain, l.code))
				return err
			})
		}
	}
}

// errUnsent is what a lookup has until it has its answer.
var errUnsent = errors.New("the lookup was not sent")

// sendAll asks all in one round trip. Each is a statement of its own, and sees what was committed before it began.
func (s *lookups) sendAll(ctx context.Context, all []*lookup) {
	var batch pgx.Batch
	for _, l := range all {
		batch.Queue(l.query, l.domain, l.code)
	}
	results := s.pool.SendBatch(ctx, &batch)
	for _, l := range all {
		l.found, l.err = scanFound(results.QueryRow())
	}
	// What it would tell, the last row did.
	_ = results.Close()
}
