package origin

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"deeplink/shared/batch"
	"deeplink/shared/postgres"
)

const (
	// connectionsPerLine leaves most connections to those who ask for something else, and the processors of Postgres to others: of many
	// batches at once each would be shorter and cost more.
	connectionsPerLine = 8
	// maxBatch is how many lookups a batch has at most.
	maxBatch = 64
)

// lookups sends lookups to Postgres, many at once when many come at once.
type lookups struct {
	*batch.Lines[*lookup]
	pool *pgxpool.Pool
}

func newLookups(pool *pgxpool.Pool) *lookups {
	s := &lookups{pool: pool}
	s.Lines = batch.New(int(pool.Config().MaxConns)/connectionsPerLine, maxBatch, s.send)
	return s
}

// lookup is one question and its answer.
type lookup struct {
	query, domain, code string
	found               Found
	err                 error
}

// errUnsent is what a lookup has until it has its answer.
var errUnsent = errors.New("the lookup was not sent")

// ask returns what the query answers about a code on a domain.
func (s *lookups) ask(ctx context.Context, query, domain, code string) (Found, error) {
	l := &lookup{query: query, domain: domain, code: code, err: errUnsent}
	if err := s.Do(ctx, l); err != nil {
		return Found{}, err
	}
	return l.found, l.err
}

// send answers all of them. They have as long as the first has: who is cut short by that is told that Postgres could not be reached, which
// says nothing about the link.
func (s *lookups) send(ctx context.Context, all []*lookup) {
	if len(all) == 1 {
		s.sendAlone(ctx, all[0])
		return
	}
	s.sendTogether(ctx, all)
	// A statement that failed takes those behind it along.
	for _, l := range all {
		if l.err != nil && !postgres.Unreachable(l.err) {
			s.sendAlone(ctx, l)
		}
	}
}

func (s *lookups) sendAlone(ctx context.Context, l *lookup) {
	l.err = again(func() (err error) {
		l.found, err = scanFound(s.pool.QueryRow(ctx, l.query, l.domain, l.code))
		return err
	})
}

// sendTogether asks all in one round trip. Each is a statement of its own, and sees what was committed before it began.
func (s *lookups) sendTogether(ctx context.Context, all []*lookup) {
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
