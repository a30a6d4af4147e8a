package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"deeplink/control/internal/store"
	"deeplink/migrations"
)

// readyTimeout bounds one check.
const readyTimeout = time.Second

var errStopping = errors.New("stopping")

// readiness says whether this process should be sent requests.
type readiness struct {
	store *store.Store
	ended atomic.Bool
}

// end makes every later check fail.
func (r *readiness) end() { r.ended.Store(true) }

// check returns nil when Postgres answers and has all migrations that this program knows. Redis is not asked: without it the service is
// slower and still right.
func (r *readiness) check() error {
	if r.ended.Load() {
		return errStopping
	}
	ctx, cancel := context.WithTimeout(context.Background(), readyTimeout)
	defer cancel()
	known, err := migrations.Versions()
	if err != nil {
		return err
	}
	applied, err := r.store.Migrated(ctx)
	if err != nil {
		return err
	}
	if missing := without(known, applied); len(missing) > 0 {
		return fmt.Errorf("the database lacks the migrations %v", missing)
	}
	return nil
}
