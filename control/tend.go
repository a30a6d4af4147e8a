package main

import (
	"context"
	"log/slog"
	"time"

	"deeplink/control/internal/store"
)

// tendEvery is how often what is new in links goes into the search indexes. Until then each search looks through all of it.
const tendEvery = 2 * time.Second

// tendSearchIndexes keeps the work of the search indexes from those who create links, until ctx ends. Every control does it; together
// they do it once. Nothing is wrong when it fails, only slower.
func tendSearchIndexes(ctx context.Context, s *store.Store, counts *dutyMetrics, log *slog.Logger) error {
	ticker := time.NewTicker(tendEvery)
	defer ticker.Stop()
	failing := false
	for {
		err := tendOnce(ctx, s)
		if ctx.Err() == nil {
			counts.tendings.WithLabelValues(result(err)).Inc()
		}
		if err != nil && !failing && ctx.Err() == nil {
			log.Warn("the search indexes are not tended", "error", err)
		}
		failing = err != nil
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

func tendOnce(ctx context.Context, s *store.Store) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return s.TendSearchIndexes(ctx)
}
