package main

import (
	"testing"

	"deeplink/shared/settings"
	"deeplink/shared/testdb"
)

// TestConnectionsAreSetUpForShortCalls reads what each connection of a pool has, and what an operator says in the URL instead.
func TestConnectionsAreSetUpForShortCalls(t *testing.T) {
	t.Parallel()
	url := testdb.New(t).ControlURL
	for _, row := range []struct{ url, name, expected string }{
		{url, "jit", "off"},
		{url, "work_mem", "16MB"},
		{url, "statement_timeout", abandonedAfter},
		{url + "&work_mem=8MB", "work_mem", "8MB"},
	} {
		pool, err := openPool(settings.Database(row.url), 1)
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
