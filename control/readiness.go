package main

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"deeplink/control/internal/store"
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

// check returns nil when Postgres answers and has the newest table that this program needs: audit_log. Redis is not asked: without it the service is slower and still right.
func (r *readiness) check() error {
	if r.ended.Load() {
		return errStopping
	}
	ctx, cancel := context.WithTimeout(context.Background(), readyTimeout)
	defer cancel()
	_, _, err := r.store.AuditLog(ctx, uuid.Nil.String(), store.AuditFilter{Page: 1, Limit: 1})
	return err
}
