package jobs

import (
	"context"
	"log/slog"
	"time"

	"deeplink/control/internal/store"
)

// flushEvery is how often control flushes the pending lists of the search indexes. Each search scans the whole pending list.
const flushEvery = 2 * time.Second

// FlushSearchIndexes moves new links from the pending lists of the search indexes into the indexes, until ctx ends, so that requests that create
// links need not. Every control runs it, and one of them at a time works. When it fails, searches are slower but correct.
func FlushSearchIndexes(ctx context.Context, s *store.Store, counts *Metrics, log *slog.Logger) error {
	ticker := time.NewTicker(flushEvery)
	defer ticker.Stop()
	failing := false
	for {
		err := flushOnce(ctx, s)
		if ctx.Err() == nil {
			counts.flushes.WithLabelValues(result(err)).Inc()
		}
		if err != nil && !failing && ctx.Err() == nil {
			log.Warn("could not flush the pending lists of the search indexes; searches are slower until it succeeds", "error", err)
		}
		failing = err != nil
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

func flushOnce(ctx context.Context, s *store.Store) error {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	return s.FlushSearchIndexes(ctx)
}
