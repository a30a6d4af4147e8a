package origin

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"deeplink/shared/postgres"
)

func TestQueryIsRetriedUntilItsPreparedStatementIsCurrent(t *testing.T) {
	t.Parallel()
	changed, other := &pgconn.PgError{Code: postgres.PlanChanged}, errors.New("other")
	for _, test := range []struct {
		name     string
		outcomes []error // of the first calls; the last one is that of all later calls
		runs     int
		err      error
	}{
		{"current at once", []error{nil}, 1, nil},
		{"several connections with changed statements", []error{changed, changed, changed, changed, nil}, 5, nil},
		{"another error", []error{other}, 1, other},
		{"another error after a changed statement", []error{changed, other}, 2, other},
		{"never current", []error{changed}, postgres.MaxRenewals, changed},
	} {
		runs := 0
		err := withCurrentPlan(func() error {
			runs++
			return test.outcomes[min(runs, len(test.outcomes))-1]
		})
		if runs != test.runs || !errors.Is(err, test.err) {
			t.Errorf("%s: %d runs and %v, expected %d and %v", test.name, runs, err, test.runs, test.err)
		}
	}
}
