package jobs

import (
	"context"
	"log/slog"
	"time"

	"deeplink/control/internal/store"
)

const (
	// transactionsEvery is the interval of the checks.
	transactionsEvery = time.Minute
	// longTransaction is how long a transaction may be open before control reports it. Until it ends, vacuum removes no row version that it
	// might read, in any database of the server.
	longTransaction = time.Hour
)

// TransactionWatch reports transactions that stay open, in all databases of the server. Every control runs one.
type TransactionWatch struct {
	store   *store.Store
	log     *slog.Logger
	metrics *Metrics
	// logged are the long transactions that it has logged already.
	logged map[transactionKey]bool
}

// NewTransactionWatch returns a watch that has logged nothing.
func NewTransactionWatch(s *store.Store, metrics *Metrics, log *slog.Logger) *TransactionWatch {
	return &TransactionWatch{store: s, log: log, metrics: metrics}
}

// transactionKey identifies a transaction.
type transactionKey struct {
	pid   int
	since int64 // nanoseconds
}

// Run checks every minute until ctx ends.
func (w *TransactionWatch) Run(ctx context.Context) error {
	ticker := time.NewTicker(transactionsEvery)
	defer ticker.Stop()
	for {
		if err := w.check(ctx); err != nil && ctx.Err() == nil {
			w.log.Warn("could not read the open transactions", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// check sets the metrics, and logs each transaction that has become long.
func (w *TransactionWatch) check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	open, err := w.store.OpenTransactions(ctx, 0)
	if err == nil {
		var hidden int64
		hidden, err = w.store.HiddenSessions(ctx)
		w.metrics.hiddenSessions.Set(float64(hidden))
	}
	if err != nil {
		w.metrics.oldestTransaction.Set(-1)
		return err
	}
	var oldest time.Duration
	logged := make(map[transactionKey]bool)
	for _, t := range open {
		oldest = max(oldest, t.Age)
		if t.Age < longTransaction {
			continue
		}
		key := transactionKey{t.PID, t.Since.UnixNano()}
		if logged[key] = true; !w.logged[key] {
			w.log.Warn("a transaction has been open for more than an hour: vacuum cannot remove what it might still read", "pid", t.PID, "role", t.Role,
				"database", t.Database, "application", t.Application, "state", t.State, "since", t.Since)
		}
	}
	w.logged = logged
	w.metrics.oldestTransaction.Set(oldest.Seconds())
	return nil
}
