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
	// connectionsPerSender limits batches to one in eight connections. The others stay free for other queries. With more senders each batch
	// would hold fewer lookups and cost Postgres more.
	connectionsPerSender = 8
	// maxBatch is the maximum number of lookups in a batch.
	maxBatch = 64
)

// lookups sends lookups to Postgres, concurrent ones together in one batch.
type lookups struct {
	*batch.Batcher[*lookup]
	pool *pgxpool.Pool
}

func newLookups(pool *pgxpool.Pool) *lookups {
	s := &lookups{pool: pool}
	s.Batcher = batch.New(int(pool.Config().MaxConns)/connectionsPerSender, maxBatch, s.send)
	return s
}

// lookup is one query and its result.
type lookup struct {
	query, domain, code string
	found               Found
	err                 error
}

// errUnsent is the error of a lookup until it has a result.
var errUnsent = errors.New("the lookup was not sent")

// query runs a query for a code on a domain.
func (s *lookups) query(ctx context.Context, query, domain, code string) (Found, error) {
	l := &lookup{query: query, domain: domain, code: code, err: errUnsent}
	if err := s.Do(ctx, l); err != nil {
		return Found{}, err
	}
	return l.found, l.err
}

// send runs a batch of lookups. The deadline of the first lookup applies to all of them. A lookup that this deadline cuts short fails as
// if Postgres could not be reached, which says nothing about the link.
func (s *lookups) send(ctx context.Context, all []*lookup) {
	if len(all) == 1 {
		s.sendAlone(ctx, all[0])
		return
	}
	s.sendTogether(ctx, all)
	// After a failed statement Postgres skips the rest of the batch.
	for _, l := range all {
		if l.err != nil && !postgres.Unreachable(l.err) {
			s.sendAlone(ctx, l)
		}
	}
}

func (s *lookups) sendAlone(ctx context.Context, l *lookup) {
	l.err = withCurrentPlan(func() (err error) {
		l.found, err = scanFound(s.pool.QueryRow(ctx, l.query, l.domain, l.code))
		return err
	})
}

// sendTogether runs all lookups in one round trip. Each is a statement of its own, with a snapshot taken when it starts.
func (s *lookups) sendTogether(ctx context.Context, all []*lookup) {
	var batch pgx.Batch
	for _, l := range all {
		batch.Queue(l.query, l.domain, l.code)
	}
	results := s.pool.SendBatch(ctx, &batch)
	for _, l := range all {
		l.found, l.err = scanFound(results.QueryRow())
	}
	// The results have already reported every error.
	_ = results.Close()
}
