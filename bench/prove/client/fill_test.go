// Package client tests bench against a fleet of real processes.
package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/jackc/pgx/v5"

	"deeplink/bench/fill"
	"deeplink/bench/prove/fleet"
	"deeplink/bench/prove/testfleet"
	"deeplink/bench/prove/visitor"
	"deeplink/shared/catalog"
	"deeplink/shared/testkit"
)

// Links that fill inserts directly must equal links that the API creates, and running edges must notice them.
func TestFilledLinksAreAsTheAPIMakesThem(t *testing.T) {
	testkit.Prove(t)
	const links, organizations, more = 300, 5, 20
	f := testfleet.Start(t, 1, 1)
	keys := filepath.Join(t.TempDir(), "keys")
	made, err := fill.Command{Links: links, Organizations: organizations, Keys: keys, Database: f.Owner, Audit: true}.Fill(t.Context(), os.Stderr)
	if err != nil || len(made.Unheard) > 0 {
		t.Fatal(err, made)
	}
	paths, err := fill.ReadKeys(keys)
	if err != nil || len(paths) != links {
		t.Fatalf("%d paths, %v; expected %d", len(paths), err, links)
	}
	largest := fleet.Organization{OrgKey: made.Largest.Key, ServerKey: made.Largest.ServerKey}
	// All links, because each has different fields.
	v := visitor.New(f.Edges[0].Addr)
	defer v.HangUp()
	for _, path := range paths {
		if status, err := v.Click(path); err != nil || status != http.StatusFound {
			t.Errorf("%s: %d, %v", path, status, err)
		}
	}
	_, text, err := largest.Request(t.Context(), f.Controls[0].Addr, http.MethodGet, "/links?limit=20", nil)
	if err != nil {
		t.Fatal(err)
	}
	var listed struct {
		Data  []json.RawMessage
		Total int
	}
	if err := json.Unmarshal(text, &listed); err != nil || listed.Total != made.Largest.Links || len(listed.Data) == 0 {
		t.Fatalf("%d links listed, %v; expected %d", listed.Total, err, made.Largest.Links)
	}
	owner, err := pgx.Connect(t.Context(), f.Owner)
	if err != nil {
		t.Fatal(err)
	}
	defer owner.Close(t.Context())
	var voided bool
	if err := owner.QueryRow(t.Context(), `select exists (select from changes where 'o:' || $1 = any (tags))`, largest.OrgKey).Scan(&voided); err != nil || !voided {
		t.Errorf("no change was recorded for edges that cached a 404 of these links: %v", err)
	}
	for _, body := range listed.Data {
		compareWithCreated(t, f, owner, largest, body)
	}
	usageIsExact(t, owner, links+len(listed.Data))

	indexes := indexesOf(t, owner)
	again, err := fill.Command{Links: more, Org: largest.OrgKey, Database: f.Owner, Rebuild: true, Audit: true}.Fill(t.Context(), os.Stderr)
	if err != nil || again.Organizations != 1 || again.Largest.Key != largest.OrgKey {
		t.Fatal(err, again)
	}
	if diff := cmp.Diff(indexes, indexesOf(t, owner)); diff != "" {
		t.Errorf("indexes before (-), after (+): %s", diff)
	}
	interrupt(t, f, owner)
	usageIsExact(t, owner, links+len(listed.Data)+more)
}

// compareWithCreated creates a link through the API with the fields of a filled link, except for the code, and compares the rows.
func compareWithCreated(t *testing.T, f *fleet.Fleet, owner *pgx.Conn, o fleet.Organization, body json.RawMessage) {
	t.Helper()
	var filled, created map[string]any
	if err := json.Unmarshal(body, &filled); err != nil {
		t.Fatal(err)
	}
	fresh := catalog.GenerateCode()
	request := make(map[string]any)
	for name, value := range filled {
		request[name] = value
	}
	request["shortCode"] = fresh
	response, text, err := o.Request(t.Context(), f.Controls[0].Addr, http.MethodPost, "/links", request)
	if err != nil || response.StatusCode != http.StatusCreated {
		t.Fatalf("%s: %v, %s", body, err, text)
	}
	if err := json.Unmarshal(text, &created); err != nil {
		t.Fatal(err)
	}
	rows := [2]map[string]any{rowOf(t, owner, filled["id"]), rowOf(t, owner, created["id"])}
	if diff := cmp.Diff(rows[1], rows[0], cmpopts.IgnoreMapEntries(func(column string, _ any) bool {
		return slices.Contains([]string{"id", "short_code", "created_at", "updated_at", "changed_xid", "audited"}, column)
	})); diff != "" {
		t.Errorf("created by the API (-), filled in (+): %s", diff)
	}
	for i, row := range rows {
		if row["created_at"] != row["updated_at"] || row["audited"] != fmt.Sprintf(`link.create {"shortCode": "%s"}`, row["short_code"]) {
			t.Errorf("row %d: %v", i, row)
		}
	}
}

// rowOf returns a link with all its columns and its audit entry.
func rowOf(t *testing.T, owner *pgx.Conn, id any) map[string]any {
	t.Helper()
	rows, _ := owner.Query(t.Context(), `
		select l.*, expiry::text as expiry, a.action || ' ' || a.detail::text as audited
		from links l left join audit_log a on a.organization_id = l.organization_id and a.target_id = l.id where l.id = $1`, id)
	row, err := pgx.CollectExactlyOneRow(rows, pgx.RowToMap)
	if err != nil {
		t.Fatal(err)
	}
	return row
}

// interrupt cancels a run early. The search indexes must exist afterwards.
func interrupt(t *testing.T, f *fleet.Fleet, owner *pgx.Conn) {
	t.Helper()
	before := indexesOf(t, owner)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		_, err := fill.Command{Links: 1_000_000, Organizations: 1, Database: f.Owner, Rebuild: true}.Fill(ctx, os.Stderr)
		ended <- err
	}()
	for n := len(before); n == len(before); {
		// Not indexesOf: pg_get_indexdef fails for an index that is dropped at that moment.
		if err := owner.QueryRow(t.Context(), `select count(*) from pg_index where indrelid = 'links'::regclass`).Scan(&n); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-ended:
			t.Fatalf("ended before it dropped anything: %v", err)
		case <-time.After(5 * time.Millisecond):
		}
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("%v, expected context.Canceled", err)
	}
	if diff := cmp.Diff(before, indexesOf(t, owner)); diff != "" {
		t.Errorf("indexes before (-), after an interrupt (+): %s", diff)
	}
}

func indexesOf(t *testing.T, owner *pgx.Conn) []string {
	t.Helper()
	rows, _ := owner.Query(t.Context(), `
		select pg_get_indexdef(indexrelid) from pg_index where indrelid = 'links'::regclass and indisvalid order by 1`)
	indexes, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return indexes
}

// usageIsExact compares the quota counters with the number of links, each of which must have an audit entry.
func usageIsExact(t *testing.T, owner *pgx.Conn, links int) {
	t.Helper()
	var wrong, all, entries int
	err := owner.QueryRow(t.Context(), `
		select (select count(*) from link_usage u
		        where u.links <> (select count(*) from links l where l.organization_id = u.organization_id)),
		       (select count(*) from links),
		       (select count(*) from audit_log a join links l on l.id = a.target_id where a.action = 'link.create')`).Scan(&wrong, &all, &entries)
	if err != nil || wrong != 0 || all != links || entries != links {
		t.Errorf("%d wrong counters; %d links and %d audit entries, expected %d; %v", wrong, all, entries, links, err)
	}
}
