package migrations_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"deeplink/shared/testkit"
)

const checkViolation = "23514"

// Control sends requests to the stored address.
func TestEdgeAddressIsHostAndPortOrNothing(t *testing.T) {
	t.Parallel()
	conn := testkit.Connect(t, testkit.NewDatabase(t).EdgeURL)
	long := strings.Repeat("a", 253)
	for address, good := range map[string]bool{
		"10.0.0.1:8080": true, "edge-1.internal:1": true, "edge_1:65535": true, "[fd00::1]:8080": true, "[::ffff:10.0.0.1]:80": true, long + ":65535": true,
		"": false, ":8080": false, "edge": false, "edge:": false, "edge:0": false, "edge:080": false, "edge:123456": false, "edge:http": false,
		"fd00::1:8080": false, "[fe80::1%eth0]:80": false, "[]:80": false, "user@edge:80": false, "edge:80/x": false, "edge/x:80": false,
		"http://edge:80": false, "edge?:80": false, "edge :80": false, "edge:80\n": false, "a\nedge:80": false, long + "a:65535": false,
	} {
		_, err := conn.Exec(t.Context(), `insert into edges (slot, incarnation, lease_ms, hold_ms, address) values (gen_random_uuid(), gen_random_uuid(), 1, 1, $1)`, address)
		var failed *pgconn.PgError
		if refused := errors.As(err, &failed) && failed.Code == checkViolation; refused == good || !refused && err != nil {
			t.Errorf("%q: %v, expected it accepted: %v", address, err, good)
		}
	}
	// An edge of an earlier version has no address.
	if _, err := conn.Exec(t.Context(), `insert into edges (slot, incarnation, lease_ms, hold_ms) values ('old', gen_random_uuid(), 1, 1)`); err != nil {
		t.Error(err)
	}
}
