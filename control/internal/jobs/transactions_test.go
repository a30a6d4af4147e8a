package jobs

import (
	"log/slog"
	"strings"
	"testing"

	"deeplink/control/internal/store"
	"deeplink/control/internal/testenv"
)

func TestLongTransactionsAreMeasuredAndLoggedOnce(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	printed := new(logBuffer)
	watch := NewTransactionWatch(store.New(w.Open(w.DB.ControlURL), testLinkBase), NewMetrics(), slog.New(slog.NewTextHandler(printed, nil)))
	if exposed := watch.metrics.exposed(); !strings.Contains(exposed, "deeplink_control_oldest_transaction_seconds -1\n") {
		t.Errorf("before the first look: %s, expected -1", exposed)
	}
	look := func() {
		t.Helper()
		if err := watch.check(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	look()
	if strings.Contains(printed.String(), "forgotten") || strings.Contains(watch.metrics.exposed(), "deeplink_control_oldest_transaction_seconds -1\n") {
		t.Errorf("logged %q, exposed %s; expected an age and no transaction of an hour", printed.String(), watch.metrics.exposed())
	}
	w.Exec(testenv.OlderTransactions)
	w.LeaveOpen("forgotten")
	look()
	look()
	if n := strings.Count(printed.String(), "application=forgotten"); n != 1 {
		t.Errorf("%q, expected the transaction once", printed.String())
	}
	if exposed := watch.metrics.exposed(); !strings.Contains(exposed, "deeplink_control_oldest_transaction_seconds 36") ||
		!strings.Contains(exposed, "deeplink_control_hidden_sessions 0\n") {
		t.Errorf("%s, expected an age of an hour and no hidden sessions", exposed)
	}
	w.Exec(`drop function open_transactions(interval)`)
	if err := watch.check(t.Context()); err == nil || !strings.Contains(watch.metrics.exposed(), "deeplink_control_oldest_transaction_seconds -1\n") {
		t.Errorf("%v, expected an error and -1", err)
	}
}
