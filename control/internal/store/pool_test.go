package store

import (
	"testing"

	"deeplink/shared/testkit"
)

// TestConnectionsAreSetUpForShortCalls reads the settings of each connection of a pool, also with an operator's values in the URL.
func TestConnectionsAreSetUpForShortCalls(t *testing.T) {
	t.Parallel()
	url := testkit.NewDatabase(t).ControlURL
	for _, row := range []struct{ url, name, expected string }{
		{url, "jit", "off"},
		{url, "work_mem", "16MB"},
		{url, "statement_timeout", abandonedAfter},
		{url, "lock_timeout", "8s"},
		{url + "&work_mem=8MB", "work_mem", "8MB"},
	} {
		pool, err := OpenPool(row.url, 1)
		if err != nil {
			t.Fatal(err)
		}
		var value string
		if err := pool.QueryRow(t.Context(), `select current_setting($1)`, row.name).Scan(&value); err != nil || value != row.expected {
			t.Errorf("%s is %q, %v; expected %q", row.name, value, err, row.expected)
		}
		pool.Close()
	}
}
