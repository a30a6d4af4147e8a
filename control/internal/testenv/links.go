package testenv

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"deeplink/control/internal/store"
)

// StoredLinks returns the links of an organization as the database has them, one a line.
func (w *Env) StoredLinks(o store.CreatedOrganization) (rows string) {
	w.T.Helper()
	if err := w.Pool.QueryRow(context.Background(), `
		select string_agg(concat_ws('|', short_code, path, fallback_url, title, tags, expiry, og_title, og_description, params), E'\n' order by short_code)
		from links where organization_id = $1`, o.ID).Scan(&rows); err != nil {
		w.T.Fatal(err)
	}
	return rows
}

// ComparableLinks returns exported links without the fields that differ in another organization.
func ComparableLinks(t testing.TB, ndjson string) []map[string]any {
	t.Helper()
	var links []map[string]any
	for line := range strings.Lines(ndjson) {
		var link map[string]any
		if err := json.Unmarshal([]byte(line), &link); err != nil {
			t.Fatal(err)
		}
		link["host"] = link["domain"].(map[string]any)["host"]
		link["params"] = ParamsOf(t, line)
		for _, own := range []string{"id", "organizationId", "domainId", "domain", "url", "createdAt", "updatedAt"} {
			delete(link, own)
		}
		links = append(links, link)
	}
	return links
}

// ParamsOf returns the params of a link as they are written.
func ParamsOf(t testing.TB, line string) string {
	t.Helper()
	var link struct{ Params json.RawMessage }
	if err := json.Unmarshal([]byte(line), &link); err != nil {
		t.Fatal(err)
	}
	return string(link.Params)
}
